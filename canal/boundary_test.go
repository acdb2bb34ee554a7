package canal

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// For each position of a file, at the ends of its events and inside them, the boundaries are the positions that the server
// reported while the transactions were committed.
func TestBoundariesOfTransactions(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		if flavor == testkit.MariaDB {
			setGlobal(t, l.db, "log_bin_compress", "1")
			setGlobal(t, l.db, "log_bin_compress_min_len", "10")
		}
		l.checkBoundaries(compressing(t, l.db))
	})
}

// Without GTIDs MySQL writes anonymous ones.
func TestBoundariesWithoutGTIDs(t *testing.T) {
	l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MySQL, Args: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}}))
	l.checkBoundaries(compressing(t, l.db))
}

// compressing is a statement that lets MySQL compress a session's transactions, where it can.
func compressing(t *testing.T, db *testkit.Database) string {
	t.Helper()
	if db.Flavor == testkit.MariaDB || db.Before(8, 0) {
		return "SET SESSION sql_log_bin=1"
	}
	return "SET SESSION binlog_transaction_compression=1"
}

// MariaDB 11.8 writes no offsets inside a transaction.
func TestBoundariesWithoutOffsets(t *testing.T) {
	l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB118}))
	l.checkBoundaries(compressing(t, l.db))
}

func (l *lab) checkBoundaries(session string) {
	l.t.Helper()
	conn, err := l.sql.Conn(context.Background())
	testkit.Must(l.t, err)
	defer conn.Close()
	run := func(statements ...string) {
		for _, s := range statements {
			if _, err := conn.ExecContext(context.Background(), s); err != nil {
				l.t.Fatalf("%s: %v", s, err)
			}
		}
	}
	l.exec("FLUSH BINARY LOGS")
	testkit.Must(l.t, l.db.AwaitLogBegun(context.Background()))
	file, ends := l.end().File, []uint64{}
	row := func(key string) string {
		return "INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', '" + key + "', 'orders', '" + strings.Repeat("x", 300) + "')"
	}
	for _, transaction := range [][]string{
		{row("a")},
		{"BEGIN", row("b"), "SAVEPOINT s", row("c"), "UPDATE t_local_message SET retry_count = 1", "COMMIT"},
		{"CREATE TABLE other (id INT PRIMARY KEY, note VARCHAR(2000)) COMMENT '" + strings.Repeat("long ", 100) + "'"},
		{"XA START 'x'", "INSERT INTO other VALUES (1, 'one')", "XA END 'x'", "XA PREPARE 'x'"},
		{"XA COMMIT 'x'"},
		{session, "BEGIN", row("d"), row("e"), "COMMIT"},
		{"SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO other VALUES (2, '" + strings.Repeat("y", 500) + "')", "SET SESSION binlog_format = 'ROW'"},
		{"DROP TABLE other"},
		{row("f")},
	} {
		run(transaction...)
		ends = append(ends, l.end().Offset)
	}
	l.compareBoundaries(file, ends, outbox.Position{})
	l.exec("FLUSH BINARY LOGS")
	l.compareBoundaries(file, ends, outbox.Position{File: l.end().File, Offset: firstOffset})
}

// compareBoundaries checks the end of each event of the file, and one byte before it. beyond follows the last boundary.
func (l *lab) compareBoundaries(file string, ends []uint64, beyond outbox.Position) {
	l.t.Helper()
	events, alone := l.eventEnds(file)
	ends = slices.Concat([]uint64{firstOffset}, ends, alone)
	slices.Sort(ends)
	for _, event := range append(events, 1<<30) {
		for _, offset := range []uint64{event - 1, event} {
			i, exact := slices.BinarySearch(ends, offset)
			want := [2]outbox.Position{{File: file, Offset: ends[max(0, i-1)]}, beyond}
			if i < len(ends) {
				want[1] = outbox.Position{File: file, Offset: ends[i]}
			}
			if exact {
				want[0] = want[1]
			}
			at := outbox.Position{File: file, Offset: offset}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for each: there are many, each with connections of its own
			before, after, err := Boundaries(ctx, l.server(), at)
			cancel()
			if err != nil {
				l.t.Fatalf("%s: %v", at, err)
			}
			if got := [2]outbox.Position{before, after}; got != want {
				l.t.Errorf("%s lies between %v, want %v", at, got, want)
			}
		}
	}
}

func (l *lab) server() server.Config { return server.Config{Address: l.db.Addr(), User: "root"} }

// eventEnds lists where the events of a file end; alone are those outside any transaction.
func (l *lab) eventEnds(file string) (ends, alone []uint64) {
	l.t.Helper()
	events, err := server.Show(context.Background(), l.sql, "SHOW BINLOG EVENTS IN '"+file+"'")
	testkit.Must(l.t, err)
	for _, e := range events {
		end, err := strconv.ParseUint(e["end_log_pos"], 10, 64)
		testkit.Must(l.t, err)
		ends = append(ends, end)
		switch e["event_type"] {
		case "Format_desc", "Previous_gtids", "Gtid_list", "Binlog_checkpoint", "Rotate":
			alone = append(alone, end)
		}
	}
	slices.Sort(ends) // those without an offset come first
	return slices.DeleteFunc(ends, func(end uint64) bool { return end <= firstOffset }), alone
}

// A file that the server does not have, and a server that does not answer in time.
func TestBoundariesThatCannotBeFound(t *testing.T) {
	l := newLab(t, testkit.SharedMySQL(t))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, _, err := Boundaries(ctx, l.server(), outbox.Position{File: "binlog.999999", Offset: 4}); err == nil || !strings.Contains(err.Error(), "binlog.999999") {
		t.Errorf("a file that is not there: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer listener.Close()
	ctx, cancel = context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, _, err := Boundaries(ctx, server.Config{Address: listener.Addr().String(), User: "root"}, l.end()); err == nil {
		t.Error("a server that never answers gave boundaries")
	}
}

// An event of unknown type and a damaged Query are skipped: an operator searches a boundary to move past them.
func TestBoundariesBeyondWhatCannotBeRead(t *testing.T) {
	start := outbox.Position{File: "binlog.000001", Offset: firstOffset}
	f := newBoundaryFinder(start, 350)
	for _, e := range []struct {
		typ  replication.EventType
		end  uint32
		body string
	}{
		{replication.GTID_EVENT, 100, ""},
		{replication.QUERY_EVENT, 200, "short"},
		{199, 250, "?"},
		{replication.XID_EVENT, 300, ""},
		{replication.GTID_EVENT, 400, ""},
		{199, 500, "?"}, // the end of this group is unknown: the next group ends it
		{replication.GTID_EVENT, 600, ""},
	} {
		err := f.HandleEvent(&replication.BinlogEvent{
			Header: &replication.EventHeader{EventType: e.typ, LogPos: e.end}, Event: &replication.GenericEvent{Data: []byte(e.body)},
		})
		if e.end < 600 && err != nil || e.end == 600 && err != errFound {
			t.Fatalf("at %d: %v", e.end, err)
		}
	}
	if got := fmt.Sprint(f.before, " ", f.after); got != "binlog.000001:300 binlog.000001:500" {
		t.Error(got)
	}
}
