package canal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/packet"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// destroying overwrites an event before the next one is read, so that remaining references to it are found.
type destroying struct{ packets }

func (d *destroying) ReadPacketTo(to io.Writer) error {
	b := to.(*eventBuffer)
	b.data = b.data[:cap(b.data)]
	for i := range b.data {
		b.data[i] = 0xa5
	}
	b.data = b.data[:0]
	return d.packets.ReadPacketTo(to)
}

// wire is a connection that holds the server's bytes.
type wire struct {
	net.Conn
	sent io.Reader
}

func (w *wire) Read(p []byte) (int, error) { return w.sent.Read(p) }

// frames puts events into packets as a server does: events of 16 MiB and more need several.
func frames(events [][]byte) []byte {
	var out []byte
	sequence := byte(0)
	for _, e := range events {
		data := append([]byte{mysql.OK_HEADER}, e...)
		for more := true; more; sequence++ {
			n := min(len(data), mysql.MaxPayloadLen)
			out = append(out, byte(n), byte(n>>8), byte(n>>16), sequence)
			out, data = append(out, data[:n]...), data[n:]
			more = n == mysql.MaxPayloadLen
		}
	}
	return out
}

// connection is the library's connection to a server that sends these bytes and then ends the stream.
func connection(sent []byte) *client.Conn {
	return &client.Conn{Conn: packet.NewConn(&wire{sent: bytes.NewReader(sent)})}
}

// destroyed makes this package read, and overwrites each event afterwards.
func destroyed(from packets) packets { return &destroying{packets: from} }

// The library's own reading is the oracle: two readers of one server, one of each kind, offer the same.
func TestOwnReadingGivesWhatTheLibraryGives(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		flavor = testkit.Needs(t, flavor, "8.0", "column names in its log")
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.exec("CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT, w JSON)")
		l.exec("INSERT INTO other (v) VALUES ('a'), ('b'), ('c')")
		from := l.end()
		l.mixedLog(flavor)
		l.exec("INSERT INTO other (v) VALUES (?)", strings.Repeat("f", 3<<20))
		l.insert("behind a large foreign row")
		l.exec(insertRow, "large", strings.Repeat("own", 1<<20))
		l.insert("last")
		end := l.end()
		var both [2]string
		for i, reading := range []func(*client.Conn) packets{func(*client.Conn) packets { return nil }, nil} {
			l.rec, l.reading = &recorder{source: lookAt(l.sql)}, reading
			l.start(from)
			l.caughtUp()
			l.stop()
			var until []*outbox.Txn
			for _, txn := range l.rec.txns {
				if txn.End.Compare(end) <= 0 {
					until = append(until, txn)
				}
			}
			both[i] = account(until)
		}
		if both[0] != both[1] {
			t.Error("what is offered differs from what the library's reading gives")
		}
		if txns, rows := strings.Count(both[1], "\n"), len(l.rec.messages); txns < 24 || rows < 12 {
			t.Errorf("%d transactions with %d rows are no test", txns, rows)
		}
	})
}

// Events of 16 MiB and more come in several packets. Those of mapped tables are read whole; those of other tables need no memory.
func TestEventsInSeveralPackets(t *testing.T) {
	s := newSieve("mysql")
	foreign, ours := tableMapBody(1, "shop", "other"), tableMapBody(2, "shop", "t_local_message")
	for _, size := range []int{mysql.MaxPayloadLen - 1 - replication.EventHeaderSize, 2*mysql.MaxPayloadLen - 1 - replication.EventHeaderSize, 20 << 20} {
		rows := func(id uint64) []byte {
			return append(rowsBody(id, true, true), make([]byte, size-len(rowsBody(id, true, true)))...)
		}
		events := [][]byte{
			rawEvent(byte(replication.FORMAT_DESCRIPTION_EVENT), 120, formatBody()),
			rawEvent(byte(replication.TABLE_MAP_EVENT), 200, foreign),
			rawEvent(byte(replication.WRITE_ROWS_EVENTv2), 300, rows(1)),
			rawEvent(byte(replication.TABLE_MAP_EVENT), 400, ours),
			rawEvent(byte(replication.WRITE_ROWS_EVENTv2), 500, rows(2)),
			rawEvent(byte(replication.XID_EVENT), 600, make([]byte, 8)),
		}
		r := eventReader{from: connection(frames(events)), buffer: eventBuffer{sieve: s}}
		tables, decode := newTableSet([]fuzzTable{{}}, zap.NewNop()), &decoder{}
		for i, want := range events {
			e, err := r.next()
			testkit.Must(t, err)
			if i == 2 {
				if len(e.RawData) != headLength-1 || cap(r.buffer.data) > keptBuffer {
					t.Fatalf("%d bytes of other tables' rows are kept, the buffer has %d", len(e.RawData), cap(r.buffer.data))
				}
			} else if !bytes.Equal(e.RawData, want) {
				t.Fatalf("event %d of %d bytes was read as %d others", i, len(want), len(e.RawData))
			}
			testkit.Must(t, s.open(e, decode.body(e, false), tables))
			if _, passed := e.Event.(passed); passed != (i == 1 || i == 2) {
				t.Fatalf("event %d means %T", i, e.Event)
			}
		}
		if _, err := r.next(); !errors.Is(err, mysql.ErrBadConn) {
			t.Fatalf("behind the last event: %v", err)
		}
		if cap(r.buffer.data) > keptBuffer {
			t.Fatalf("a buffer of %d bytes is kept", cap(r.buffer.data))
		}
	}
}

// A packet that is not an event ends the stream, with the same class as when the library reads.
func TestPacketsThatAreNoEvents(t *testing.T) {
	event := rawEvent(byte(replication.XID_EVENT), 600, make([]byte, 8))
	wrong := bytes.Clone(event)
	wrong[9]++
	refusal := append([]byte{mysql.ERR_HEADER, 0xd4, 0x04}, "#HY000could not find first log file name in binary log index file"...)
	packetOf := func(sequence byte, data []byte) []byte {
		return append([]byte{byte(len(data)), 0, 0, sequence}, data...)
	}
	for name, c := range map[string]struct {
		sent []byte
		want class
	}{
		"cut in a header":   {frames([][]byte{event})[:2], classLost},
		"cut in an event":   {frames([][]byte{event})[:20], classLost},
		"nothing":           {nil, classLost},
		"another sequence":  {packetOf(7, append([]byte{0}, event...)), classBroken},
		"another length":    {frames([][]byte{wrong}), classBroken},
		"shorter than any":  {frames([][]byte{event[:7]}), classBroken},
		"an empty packet":   {packetOf(0, nil), classBroken},
		"an error":          {packetOf(0, refusal), classGap},
		"an end, then none": {packetOf(0, []byte{mysql.EOF_HEADER}), classLost},
		"neither":           {packetOf(0, []byte{0x42, 1, 2}), classLost},
	} {
		t.Run(name, func(t *testing.T) {
			r := eventReader{from: connection(c.sent), buffer: eventBuffer{sieve: newSieve("mysql")}}
			_, err := r.next()
			if err == nil {
				t.Fatal("it is an event")
			}
			if got, _ := classOf(&streamError{err}); got != c.want {
				t.Errorf("%v is of class %s, not %s", err, got, c.want)
			}
			_, err = readAsLibrary(c.sent)
			if got, _ := classOf(&streamError{err}); got != c.want {
				t.Errorf("the library: %v is of class %s, not %s", err, got, c.want)
			}
		})
	}
}

// readAsLibrary is the library's own loop over packets, up to the first event.
func readAsLibrary(sent []byte) (e *replication.BinlogEvent, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
		}
	}()
	parser := replication.NewBinlogParser()
	parser.SetRawMode(true)
	return nextOfLibrary(connection(sent), parser)
}

// nextOfLibrary is what the library does with packets, up to the next event.
func nextOfLibrary(conn *client.Conn, parser *replication.BinlogParser) (*replication.BinlogEvent, error) {
	for {
		data, err := conn.ReadPacket()
		if err != nil {
			return nil, err
		}
		switch data[0] {
		case mysql.OK_HEADER:
			return parser.Parse(data[1:])
		case mysql.ERR_HEADER:
			return nil, conn.HandleErrorPacket(data)
		}
	}
}

// waiting is a handler that accepts nothing until its context ends.
type waiting struct {
	*recorder
	inside chan struct{}
}

func (w *waiting) Offer(ctx context.Context, _ *outbox.Txn) error {
	close(w.inside)
	<-ctx.Done()
	return ctx.Err()
}

// A reader stops while its handler blocks, though nothing is read then.
func TestReaderEndsWhileOfferBlocks(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		h := &waiting{&recorder{source: lookAt(l.sql)}, make(chan struct{})}
		cfg := Config{Server: server.Config{Address: l.db.Addr(), User: "root"}, Tables: []*table.Table{l.table}, Recorded: h.record}
		from := l.end()
		l.insert("a")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- New(cfg, h, l.log, prometheus.NewRegistry()).Run(ctx, from) }()
		<-h.inside
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
