package canal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// account prints everything that was offered.
func account(txns []*outbox.Txn) string {
	var out strings.Builder
	for _, txn := range txns {
		fmt.Fprintf(&out, "%s %v %v", txn.End, txn.GTID, txn.CommittedAt)
		for _, m := range txn.Messages {
			fmt.Fprintf(&out, " [%v %s %d %q]", m.Identity, m.Key, m.Status, m.Body)
		}
		fmt.Fprintf(&out, " %v\n", txn.Deferred)
	}
	return out.String()
}

// The library's parser is the oracle: a log with everything that a server writes means the same with and without the sieve.
func TestSieveMeansWhatTheLibrarySays(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		flavor = testkit.Needs(t, flavor, "8.0", "column names in its log")
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.exec("CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200), w JSON)")
		l.exec("INSERT INTO other (v) VALUES ('a'), ('b'), ('c')")
		from := l.end()
		l.mixedLog(flavor)
		events := l.record(t, from)
		ways := [3]string{}
		var parsed, all int
		for i := range ways {
			got, tables := &recorder{}, newTableSet([]*table.Table{l.table}, zap.NewNop())
			testkit.Must(t, playThrough(i, got, flavor, tables, events))
			ways[i], all = account(got.txns), len(got.txns)
			for _, txn := range got.txns {
				parsed += len(txn.Messages)
			}
		}
		if ways[0] != ways[1] {
			t.Errorf("the library says\n%sthe sieve says\n%s", ways[0], ways[1])
		}
		if ways[0] != ways[2] {
			t.Errorf("the library says\n%sour own reading says\n%s", ways[0], ways[2])
		}
		if all < 20 || parsed < len(ways)*12 {
			t.Errorf("%d transactions with %d rows are no test", all, parsed/len(ways))
		}
	})
}

// playThrough plays in one of three ways: the library parses everything; the sieve parses what the library reads; this package
// reads too, and each event is overwritten when the next one is read.
func playThrough(way int, to receiver, flavor testkit.Flavor, tables *tableSet, events [][]byte) error {
	switch way {
	case 0:
		return play(to, flavor, tables, events, nil)
	case 1:
		return play(to, flavor, tables, events, newSieve(string(flavor)))
	}
	return playPackets(to, flavor, tables, frames(events), destroyed)
}

// mixedLog writes transactions of every kind.
func (l *lab) mixedLog(flavor testkit.Flavor) {
	conn, err := l.sql.Conn(l.t.Context())
	testkit.Must(l.t, err)
	defer conn.Close()
	do := func(statements ...string) {
		for _, s := range statements {
			if _, err := conn.ExecContext(l.t.Context(), s); err != nil {
				l.t.Fatalf("%s: %v", s, err)
			}
		}
	}
	row := func(key string) string {
		return "INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', '" + key + "', 'orders', '" + strings.Repeat(key, 200) + "')"
	}
	mixed := func(key string) {
		do(row(key+"a"), "UPDATE other SET v = '"+key+"'", "DELETE FROM other WHERE id = 99")
		do("BEGIN", "INSERT INTO other (v) VALUES ('"+key+"')", row(key+"b"), "UPDATE other SET v = 'x' WHERE id = 1", "SAVEPOINT s", row(key+"c"), "ROLLBACK TO s", "COMMIT")
		do("UPDATE t_local_message, other SET status = 2, v = 'both' WHERE biz_key = '" + key + "a' AND other.id = 2")
		do("BEGIN", row(key+"d"), "UPDATE t_local_message SET topic = 'again' WHERE biz_key = '"+key+"d'", "COMMIT")
		do("DELETE other FROM other, t_local_message WHERE other.v = '" + key + "'")
		do("BEGIN", row(key+"e"), "ROLLBACK", "BEGIN", row(key+"f"), row(key+"g"), "COMMIT")
	}
	mixed("k")
	do("SET SESSION binlog_row_image = MINIMAL")
	mixed("m")
	do("SET SESSION binlog_row_image = FULL", "ALTER TABLE t_local_message ADD extra INT NULL", "ALTER TABLE other ADD extra INT NULL")
	mixed("n")
	do("FLUSH TABLES", "XA START 'x'", row("xa"), "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
	if flavor == testkit.MySQL {
		do("SET SESSION binlog_rows_query_log_events = ON")
		mixed("o")
		if !l.db.Before(8, 0) {
			do("SET SESSION binlog_transaction_compression = ON")
		}
	} else {
		setGlobal(l.t, l.db, "log_bin_compress", "ON")
		setGlobal(l.t, l.db, "log_bin_compress_min_len", "10")
	}
	mixed("p")
}

// FuzzSieve changes events: what the library can read means the same through the sieve. What it cannot read may be skipped there.
func FuzzSieve(f *testing.F) {
	names := [][2]string{{"shop", "t_local_message"}, {"shop", "other"}}
	for n, name := range names {
		f.Add(byte(replication.TABLE_MAP_EVENT), tableMapBody(uint64(n+1), name[0], name[1]), byte(replication.WRITE_ROWS_EVENTv2), rowsBody(uint64(n+1), true, true))
		f.Add(byte(replication.TABLE_MAP_EVENT), tableMapBody(uint64(n+1), name[0], name[1]), byte(replication.UPDATE_ROWS_EVENTv1), rowsBody(uint64(n+1), false, false))
	}
	f.Add(byte(replication.TABLE_MAP_EVENT), tableMapBody(2, "shop", "other"), byte(replication.WRITE_ROWS_EVENTv2), append(rowsBody(2, true, true), make([]byte, 100)...))
	f.Add(byte(replication.QUERY_EVENT), append(make([]byte, 14), "COMMIT"...), byte(replication.XID_EVENT), make([]byte, 8))
	f.Add(byte(replication.GTID_EVENT), make([]byte, 42), byte(replication.MARIADB_GTID_EVENT), make([]byte, 19))
	f.Fuzz(func(t *testing.T, type1 byte, body1 []byte, type2 byte, body2 []byte) {
		if hugeList(type1, body1) || hugeList(type2, body2) {
			return
		}
		first, second := rawEvent(type1, 400, body1), rawEvent(type2, 500, body2)
		if replication.EventType(type1) == replication.FORMAT_DESCRIPTION_EVENT || replication.EventType(type2) == replication.FORMAT_DESCRIPTION_EVENT {
			return
		}
		start := [][]byte{
			rawEvent(byte(replication.FORMAT_DESCRIPTION_EVENT), 120, formatBody()),
			rawEvent(byte(replication.QUERY_EVENT), 200, append(make([]byte, 14), "BEGIN"...)),
		}
		ours := tableMapBody(1, "shop", "t_local_message")
		usual := [][]byte{rawEvent(byte(replication.TABLE_MAP_EVENT), 300, ours), rawEvent(byte(replication.WRITE_ROWS_EVENTv2), 350, rowsBody(1, true, true))}
		end := rawEvent(byte(replication.XID_EVENT), 600, make([]byte, 8))
		events := append(append(start, usual...), first, second, usual[0], usual[1], end)
		var got [3]string
		for i := range got {
			result, err := playFuzzed(i, events)
			if err != nil && i == 0 {
				return
			}
			if err != nil {
				t.Fatalf("the library reads it, the sieve says %v", err)
			}
			got[i] = result
		}
		if got[0] != got[1] || got[0] != got[2] {
			t.Fatalf("the library says\n%sthe sieve says\n%sour own reading says\n%s", got[0], got[1], got[2])
		}
	})
}

// hugeList reports whether an event claims more GTIDs than it has bytes: the library allocates memory for all of them, gigabytes.
func hugeList(typ byte, body []byte) bool {
	return replication.EventType(typ) == replication.MARIADB_GTID_LIST_EVENT && len(body) >= 4 && int(binary.LittleEndian.Uint32(body)) > len(body)
}

func playFuzzed(way int, events [][]byte) (result string, err error) {
	defer func() {
		if cause := recover(); cause != nil { // as the library's reading goroutine does
			err = fmt.Errorf("%v", cause)
		}
	}()
	got := &recorder{}
	tables := newTableSet([]fuzzTable{{}}, zap.NewNop())
	err = playThrough(way, got, testkit.MySQL, tables, events)
	return account(got.txns), err
}

// fuzzTable has one column.
type fuzzTable struct{}

func (fuzzTable) Name() string                   { return "shop.t_local_message" }
func (fuzzTable) Reads() []table.Column          { return []table.Column{table.Body} }
func (fuzzTable) ColumnName(table.Column) string { return "body" }
func (fuzzTable) LogOnly() bool                  { return false }
func (fuzzTable) Message(values []table.Value) (*outbox.Message, error) {
	return &outbox.Message{Body: bytes.Clone(values[0].Data)}, nil
}

func rawEvent(typ byte, end uint32, body []byte) []byte {
	e := make([]byte, replication.EventHeaderSize, replication.EventHeaderSize+len(body))
	e[4] = typ
	binary.LittleEndian.PutUint32(e[9:], uint32(replication.EventHeaderSize+len(body)))
	binary.LittleEndian.PutUint32(e[13:], end)
	return append(e, body...)
}

// formatBody is the body of MySQL 8's format description without checksums.
func formatBody() []byte {
	body := make([]byte, 2+50+4+1)
	body[0], body[56] = 4, replication.EventHeaderSize
	copy(body[2:], "8.0.36")
	lengths := make([]byte, 41)
	lengths[replication.TABLE_MAP_EVENT-1] = 8
	for _, typ := range []replication.EventType{replication.WRITE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv1} {
		lengths[typ-1] = 8
	}
	for _, typ := range []replication.EventType{replication.WRITE_ROWS_EVENTv2, replication.UPDATE_ROWS_EVENTv2, replication.DELETE_ROWS_EVENTv2} {
		lengths[typ-1] = 10
	}
	return append(append(body, lengths...), 0, 0, 0, 0, 0) // no checksum, and room for one
}

// tableMapBody is the map of a table with one VARCHAR(100) named body.
func tableMapBody(id uint64, schema, name string) []byte {
	body := binary.LittleEndian.AppendUint64(nil, id)[:6]
	body = append(body, 1, 0, byte(len(schema)))
	body = append(append(body, schema...), 0, byte(len(name)))
	body = append(append(body, name...), 0, 1, 15, 2, 100, 0, 1) // columns, type, metadata, nullable
	return append(body, 4, 5, 4, 'b', 'o', 'd', 'y')             // names of the columns
}

func rowsBody(id uint64, v2, last bool) []byte {
	body := binary.LittleEndian.AppendUint64(nil, id)[:6]
	if last {
		body = append(body, 1, 0)
	} else {
		body = append(body, 0, 0)
	}
	if v2 {
		body = append(body, 2, 0)
	}
	return append(body, 1, 1, 0, 2, 'h', 'i')
}
