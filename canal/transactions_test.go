package canal

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/go-sql-driver/mysql"
)

// session returns one connection, closed at the end of the test.
func (l *lab) session(statements ...string) *sql.Conn {
	l.t.Helper()
	conn, err := l.sql.Conn(context.Background())
	testkit.Must(l.t, err)
	l.t.Cleanup(func() {
		// Session settings must not come back to the pool.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	})
	l.on(conn, statements...)
	return conn
}

func (l *lab) on(conn *sql.Conn, statements ...string) {
	l.t.Helper()
	for _, s := range statements {
		if _, err := conn.ExecContext(context.Background(), s); err != nil {
			l.t.Fatalf("%s: %v", s, err)
		}
	}
}

func rowSQL(key string) string {
	return fmt.Sprintf("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', '%s', 'orders', 'body of %s')", key, key)
}

// fence inserts a last row and waits for it, so that everything before it was offered. It returns the earlier keys.
func (l *lab) fence() []string {
	l.t.Helper()
	key := fmt.Sprintf("fence%d", len(l.rec.ids()))
	l.insert(key)
	var keys []string
	l.wait("row "+key, func() bool {
		keys = l.rec.keys()
		return slices.Contains(keys, key)
	})
	return slices.DeleteFunc(keys, func(k string) bool { return strings.HasPrefix(k, "fence") })
}

func (l *lab) expect(keys string, causes map[outbox.Cause]int) {
	l.t.Helper()
	if got := joined(l.fence()); got != keys {
		l.t.Errorf("published %s, want %s", got, keys)
	}
	got := l.rec.causes()
	for cause, n := range causes {
		if got[cause] != n {
			l.t.Errorf("deferred %v, want %v", got, causes)
		}
	}
	if len(got) != len(causes) {
		l.t.Errorf("deferred %v, want %v", got, causes)
	}
}

// A20: a compressed transaction is one event; it can be switched on in a session.
func TestA20_CompressedTransactions(t *testing.T) {
	l := newLab(t, testkit.SharedDatabase(t, testkit.Needs(t, testkit.MySQL, "8.0", "compressed transactions")))
	l.start(l.end())
	conn := l.session("SET SESSION binlog_transaction_compression = ON", "BEGIN", rowSQL("a"), rowSQL("b"), "COMMIT", rowSQL("c"),
		"BEGIN", rowSQL("d"), "UPDATE t_local_message SET status = 2 WHERE biz_key = 'd'", "COMMIT",
		"CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1)")
	end := l.end()
	l.expect("a,b,c", map[outbox.Cause]int{outbox.CauseRewritten: 1})
	l.on(conn, "BEGIN", "SAVEPOINT s", rowSQL("e"), "ROLLBACK TO SAVEPOINT s", rowSQL("f"), "COMMIT")
	l.expect("a,b,c,f", map[outbox.Cause]int{outbox.CauseRewritten: 1})
	l.rec.mu.Lock()
	defer l.rec.mu.Unlock()
	for _, txn := range l.rec.txns {
		if txn.End == (outbox.Position{File: end.File, Offset: end.Offset}) {
			return
		}
	}
	t.Errorf("no transaction ends at %s, where the log ended", end)
}

// A20: events that are compressed one by one.
func TestA20_CompressedEventsOfMariaDB(t *testing.T) {
	db := testkit.SharedMariaDB(t)
	setGlobal(t, db, "log_bin_compress", "ON")
	setGlobal(t, db, "log_bin_compress_min_len", "10")
	l := newLab(t, db)
	l.start(l.end())
	l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'a', 'orders', REPEAT('x', 100000))")
	l.insert("b")
	l.exec("UPDATE t_local_message SET status = 2")
	l.exec("ALTER TABLE t_local_message COMMENT 'a comment that is long enough to be compressed, compressed, compressed'")
	l.expect("a,b", map[outbox.Cause]int{outbox.CauseStatement: 0})
	if n := len(l.rec.sent()[0].Body); n != 100000 {
		t.Fatalf("body of %d bytes", n)
	}
}

// A32: SAVEPOINT is a Query inside the group.
func TestA32_Savepoints(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start(l.end())
		l.session("BEGIN", rowSQL("a"), "SAVEPOINT s", rowSQL("b"), "ROLLBACK TO SAVEPOINT s", rowSQL("c"), "RELEASE SAVEPOINT s", "COMMIT",
			"BEGIN", rowSQL("d"), "ROLLBACK", rowSQL("e"))
		l.expect("a,c,e", nil)
	})
}

// A33: with a table that cannot roll back, the log has rows that were rolled back.
func TestA33_NonTransactionalNeighbour(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.exec("CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=MyISAM")
		l.start(l.end())
		conn := l.session()
		// With enforced GTIDs MySQL refuses to mix engines in one transaction; then there is nothing to check.
		_, err := conn.ExecContext(context.Background(), "INSERT INTO plain VALUES (1)")
		testkit.Must(t, err)
		if flavor == testkit.MariaDB {
			l.on(conn, "BEGIN", rowSQL("a"), "INSERT INTO plain VALUES (2)", "ROLLBACK")
			l.on(conn, "BEGIN", rowSQL("b"), "SAVEPOINT s", rowSQL("c"), "INSERT INTO plain VALUES (3)", "ROLLBACK TO SAVEPOINT s", "COMMIT")
		}
		l.on(conn, rowSQL("d"))
		if got := joined(l.fence()); strings.Contains(got, "a") || strings.Contains(got, "c") || !strings.Contains(got, "d") {
			t.Fatalf("published %s", got)
		}
		var inTable []string
		rows, err := l.sql.Query("SELECT biz_key FROM t_local_message WHERE biz_key NOT LIKE 'fence%'")
		testkit.Must(t, err)
		defer rows.Close()
		for rows.Next() {
			var key string
			testkit.Must(t, rows.Scan(&key))
			inTable = append(inTable, key)
		}
		t.Logf("in the table %v, deferred %v", inTable, l.rec.causes())
	})
}

// A31: rows are in the log at XA PREPARE; the outcome comes in a later group, perhaps in another stream or another process.
func TestA31_XA(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.exec("CREATE TABLE other (id INT PRIMARY KEY)")
		l.start(l.end())
		branch := func(xid, change string) *sql.Conn {
			return l.session("XA START "+xid, change, "XA END "+xid, "XA PREPARE "+xid)
		}
		var left []outbox.Deferred
		wantLeft := func(what string, more ...outbox.Deferred) {
			t.Helper()
			l.expect("", map[outbox.Cause]int{outbox.CauseXA: 3})
			left = append(left, more...)
			if got := l.rec.left(); !slices.Equal(got, left) {
				t.Fatalf("%s: deferred %v, want %v", what, got, left)
			}
		}
		rows := func(n int) outbox.Deferred {
			return outbox.Deferred{Table: l.table.Name(), Cause: outbox.CauseXA, Rows: n}
		}
		first, second, third := branch("'x1'", rowSQL("a")), branch("'x2','q'", rowSQL("b")), branch("'x3'", rowSQL("c"))
		foreign := branch("'x4','q',7", "INSERT INTO other VALUES (1)")
		wantLeft("prepared", rows(1), rows(1), rows(1))
		l.on(second, "XA ROLLBACK 'x2','q'")
		wantLeft("rolled back")
		l.on(foreign, "XA COMMIT 'x4','q',7")
		wantLeft("another table's commit")
		testkit.Exec(t, l.db.Root(), fmt.Sprintf("KILL %d", l.dumpThread()))
		l.on(first, "XA COMMIT 'x1'")
		wantLeft("commit in another stream", rows(0))
		l.stop()
		at := l.end()
		l.on(third, "XA COMMIT 'x3'")
		l.start(at)
		wantLeft("commit to another process", outbox.Deferred{Cause: outbox.CauseXA})
		l.on(first, "XA START 'x5'", rowSQL("d"), "XA END 'x5'", "XA COMMIT 'x5' ONE PHASE")
		if got := joined(l.fence()); got != "" && got != "d" {
			t.Errorf("published %s", got)
		}
		if n := len(l.reader.branches); n != 0 {
			t.Errorf("%d branches are remembered after their outcomes", n)
		}
	})
}

// dumpThread returns the connection id of the reader's stream.
func (l *lab) dumpThread() (id int) {
	l.t.Helper()
	l.wait("the server to have one stream", func() bool { // the reader reports connected before it requests the log
		var n int
		testkit.Must(l.t, l.sql.QueryRow("SELECT COUNT(*), COALESCE(MAX(id), 0) FROM "+l.db.Processlist()+" WHERE COMMAND LIKE 'Binlog Dump%'").Scan(&n, &id))
		return n == 1
	})
	return id
}

// A30: statement format has no rows.
func TestA30_StatementFormat(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start(l.end())
		l.session("SET SESSION sql_log_bin = 0", rowSQL("missed"))
		l.session("SET SESSION binlog_format = 'STATEMENT'", rowSQL("a"))
		l.expect("", map[outbox.Cause]int{outbox.CauseStatement: 0})
		if l.rec.left()[0].Table != l.table.Name() {
			t.Fatalf("deferred %v", l.rec.left())
		}
	})
}

// A29: REPLACE and ON DUPLICATE KEY on an existing row are an UPDATE, which the sweep handles.
func TestA29_ReplaceOfAnExistingRow(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start(l.end())
		l.exec(rowSQL("a"))
		l.exec(strings.Replace(rowSQL("a"), "INSERT", "REPLACE", 1))
		l.exec(rowSQL("a") + " ON DUPLICATE KEY UPDATE status = 0, retry_count = 5")
		l.exec(strings.Replace(rowSQL("b"), "INSERT", "REPLACE", 1))
		got := joined(l.fence())
		if strings.TrimPrefix(got, "a,") != "b" && got != "a,a,b" {
			t.Fatalf("published %s", got)
		}
	})
}

// A61: rows that come from files and queries are rows.
func TestA61_InsertSelectTriggerAndLoadData(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		flavor = testkit.Needs(t, flavor, "8.0", "column names in its log")
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start(l.end())
		l.exec("CREATE TABLE staging (k VARCHAR(40))")
		l.exec("INSERT INTO staging SELECT 'k1' AS k UNION SELECT 'k2' UNION SELECT 'k3'")
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) SELECT 'order', k, 'orders', 'x' FROM staging ORDER BY k")
		l.exec("CREATE TABLE purchases (k VARCHAR(40) PRIMARY KEY)")
		l.exec("CREATE TRIGGER t AFTER INSERT ON purchases FOR EACH ROW INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', NEW.k, 'orders', 'x')")
		l.exec("INSERT INTO purchases VALUES ('t1'), ('t2')")
		file := filepath.Join(t.TempDir(), "rows.txt")
		testkit.Must(t, os.WriteFile(file, []byte("order\tl1\torders\tx\norder\tl2\torders\tx\n"), 0o600))
		mysql.RegisterLocalFile(file)
		defer mysql.DeregisterLocalFile(file)
		testkit.Exec(t, l.db.Root(), "SET GLOBAL local_infile = 1")
		l.exec("LOAD DATA LOCAL INFILE '" + file + "' INTO TABLE t_local_message (biz_type, biz_key, topic, message_body)")
		// The text of the trigger names the table, so the log alone does not show that it inserted no row: the table is swept.
		l.expect("k1,k2,k3,t1,t2,l1,l2", map[outbox.Cause]int{outbox.CauseStatement: 0})
	})
}

// A22: a tagged transaction is counted separately from untagged ones; a resume loses and repeats nothing.
func TestA22_TaggedGTIDs(t *testing.T) {
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.Needs(t, testkit.MySQL, "8.3", "tagged GTIDs")})
	l := newLab(t, db)
	proxy := testkit.NewProxy(t, db.Addr())
	var cut bool
	l.rec = &recorder{source: lookAt(l.sql)}
	l.rec.offer = func(txn *outbox.Txn) error {
		if len(txn.Messages) > 0 && txn.Messages[0].Key == "k70" && !cut {
			cut = true
			proxy.Cut()
		}
		return nil
	}
	l.start(l.end(), func(c *Config) { c.Server.Address = proxy.Addr() })
	conn := l.session()
	body := strings.Repeat("x", 60_000)
	for i := range 140 {
		if i == 100 { // rows sent before the cut may still arrive, the rest needs another stream
			l.wait("a new stream", func() bool { return l.streams() > 1 })
		}
		next := "AUTOMATIC"
		if i < 60 {
			next = "AUTOMATIC:app"
		}
		l.on(conn, "SET gtid_next = '"+next+"'")
		_, err := conn.ExecContext(context.Background(), insertRow, fmt.Sprint("k", i), body)
		testkit.Must(t, err)
	}
	l.on(conn, "SET gtid_next = 'AUTOMATIC'")
	keys := l.published(140)
	if len(keys) != 140 || !cut || len(l.rec.streams()) < 2 {
		t.Fatalf("%d rows in %d streams", len(keys), len(l.rec.streams()))
	}
	for i, key := range keys {
		if key != fmt.Sprint("k", i) {
			t.Fatalf("row %d is %s", i, key)
		}
	}
	if from := l.rec.streams()[1].from.GTIDs; !strings.Contains(from, ":app:1-60") {
		t.Fatalf("resumed from %s", from)
	}
}

// On MariaDB our own updates, marked to be skipped, are not sent.
func TestSkippedTransactionsAreNotSent(t *testing.T) {
	l := newLab(t, testkit.SharedMariaDB(t))
	l.start(l.end())
	l.insert("a")
	l.published(1)
	l.caughtUp()
	before := metric(t, l.reg, "canal_outbox_binlog_transactions_total")
	l.session("SET SESSION skip_replication = 1", "UPDATE t_local_message SET status = 2", "UPDATE t_local_message SET status = 3")
	l.caughtUp()
	if n := metric(t, l.reg, "canal_outbox_binlog_transactions_total") - before; n != 0 {
		t.Fatalf("%v transactions came", n)
	}
	l.expect("a", nil)
}
