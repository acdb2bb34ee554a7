package canal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// tape collects the raw events of a log.
type tape struct {
	events [][]byte
	until  outbox.Position
	done   chan struct{}
}

func (c *tape) HandleEvent(e *replication.BinlogEvent) error {
	if e.Header.EventType == replication.HEARTBEAT_EVENT {
		if uint64(e.Header.LogPos) >= c.until.Offset {
			close(c.done)
			return context.Canceled
		}
		return nil
	}
	c.events = append(c.events, e.RawData)
	return nil
}

func (l *lab) record(b testing.TB, from outbox.Position) [][]byte {
	b.Helper()
	_, until, err := lookAt(l.sql)(context.Background())
	testkit.Must(b, err)
	c := &tape{until: until, done: make(chan struct{})}
	s := &stream{ctx: context.Background()}
	w := newStreamDialer(s.ctx)
	defer w.close()
	cfg := Config{Server: server.Config{Address: l.db.Addr(), User: "root"}, ServerID: 99}.withDefaults()
	sc := s.config(cfg, serverState{info: server.Info{ID: server.ID{Flavor: outbox.Flavor(l.db.Flavor)}}}, outbox.Position{}, w, c)
	sc.HeartbeatPeriod = 100 * time.Millisecond
	_, err = replication.NewBinlogSyncer(sc).StartSync(mysql.Position{Name: from.File, Pos: uint32(from.Offset)})
	testkit.Must(b, err)
	<-c.done
	return c.events
}

// discard drops each transaction.
type discard struct{ recorder }

func (n *discard) Offer(context.Context, *outbox.Txn) error { return nil }

// BenchmarkStream replays recorded events through parser, decoder and assembler, without the socket: time and allocations
// per transaction.
func BenchmarkStream(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		db := testkit.NewDatabase(b, testkit.DatabaseOptions{Flavor: flavor})
		conn := db.Connect(b, "")
		testkit.Exec(b, conn, "CREATE DATABASE bench")
		l := &lab{db: db, sql: db.Connect(b, "bench"), schema: "bench"}
		testkit.Exec(b, l.sql, outboxDDL)
		testkit.Exec(b, l.sql, "CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(1000))")
		m, err := table.Preset("t_local_message")
		testkit.Must(b, err)
		m.Schema, m.Name = l.schema, "t_local_message"
		tbl, _, err := table.Load(context.Background(), l.sql, m)
		testkit.Must(b, err)
		const n = 500
		body := strings.Repeat("x", 500)
		loads := map[string]func(i int){
			"insert": func(i int) { testkit.Exec(b, l.sql, insertRow, fmt.Sprint("k", i), body) },
			"update": func(i int) {
				testkit.Exec(b, l.sql, "UPDATE t_local_message SET status = status + 1 WHERE biz_key = ?", fmt.Sprint("k", i))
			},
			"other": func(int) { testkit.Exec(b, l.sql, "INSERT INTO other (v) VALUES (?)", body) },
		}
		for _, load := range []string{"insert", "update", "other"} {
			_, from, err := lookAt(l.sql)(context.Background())
			testkit.Must(b, err)
			for i := range n {
				loads[load](i)
			}
			events := l.record(b, from)
			b.Run(string(flavor)+"/"+load, func(b *testing.B) {
				b.ReportAllocs()
				tables := newTableSet([]*table.Table{tbl}, zap.NewNop())
				b.ResetTimer()
				for range b.N/n + 1 {
					replay(b, flavor, tables, events, nil)
				}
			})
			sent := frames(events)
			for name, own := range map[string]func(packets) packets{"library": nil, "own": func(p packets) packets { return p }} {
				b.Run(string(flavor)+"/"+load+"/packets/"+name, func(b *testing.B) {
					b.ReportAllocs()
					tables := newTableSet([]*table.Table{tbl}, zap.NewNop())
					b.ResetTimer()
					for range b.N/n + 1 {
						testkit.Must(b, playPackets(&discard{}, flavor, tables, sent, own))
					}
				})
			}
			b.Run(string(flavor)+"/"+load+"/sieve", func(b *testing.B) {
				b.ReportAllocs()
				tables := newTableSet([]*table.Table{tbl}, zap.NewNop())
				b.ResetTimer()
				for range b.N/n + 1 {
					replay(b, flavor, tables, events, newSieve(string(flavor)))
				}
			})
		}
	}
}

func replay(b *testing.B, flavor testkit.Flavor, tables *tableSet, events [][]byte, through *sieve) {
	if err := play(&discard{}, flavor, tables, events, through); err != nil {
		b.Fatal(err)
	}
}

// play feeds recorded events to a handler: through a sieve, or without one as the library parses them.
func play(to receiver, flavor testkit.Flavor, tables *tableSet, events [][]byte, through *sieve) error {
	parser := replication.NewBinlogParser()
	parser.SetFlavor(string(flavor))
	parser.SetRowsEventDecodeFunc(headerOnly)
	parser.SetTableMapOptionalMetaDecodeFunc(noMetadata)
	parser.SetRawMode(through != nil)
	s := playStream(to, flavor, tables, through)
	for _, raw := range events {
		e, err := parser.Parse(raw)
		if err == nil {
			err = s.HandleEvent(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func playStream(to receiver, flavor testkit.Flavor, tables *tableSet, through *sieve) *stream {
	return &stream{
		sieve: through,
		ctx:   context.Background(), handler: to, gauge: newGauge(prometheus.NewRegistry(), nil, time.Second),
		decode: &decoder{tables: tables, now: time.Now}, assemble: newAssembler(1<<26, outbox.Position{}, map[string][]*mapped{}),
		set: outbox.NewGTIDSet(outbox.Flavor(flavor)),
	}
}

// playPackets is play for packets of a connection, read by us or by the library.
func playPackets(to receiver, flavor testkit.Flavor, tables *tableSet, sent []byte, own func(packets) packets) error {
	s, conn := playStream(to, flavor, tables, newSieve(string(flavor))), connection(sent)
	var err error
	if own != nil {
		err = s.readOn(own(conn))
	} else {
		err = s.readWithLibrary(conn)
	}
	if errors.Is(err, mysql.ErrBadConn) { // the end of what was sent
		return nil
	}
	return err
}

// readWithLibrary is the library's loop over the packets of a stream in its raw mode.
func (s *stream) readWithLibrary(conn *client.Conn) error {
	parser := replication.NewBinlogParser()
	parser.SetRawMode(true)
	for {
		e, err := nextOfLibrary(conn, parser)
		if err == nil {
			err = s.HandleEvent(e)
		}
		if err != nil {
			return err
		}
	}
}
