package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// A32: only what was committed comes out, whatever was taken back on the way.
func TestA32_SavepointsAndRollbacks(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := prompt(t, flavor)
		l.session("BEGIN", insert("a"), "SAVEPOINT s", insert("taken back"), "ROLLBACK TO SAVEPOINT s", insert("b"), "COMMIT",
			"BEGIN", insert("rolled back"), "ROLLBACK",
			"BEGIN", "SAVEPOINT s", insert("taken back too"), "ROLLBACK TO SAVEPOINT s", "COMMIT",
			"BEGIN", insert("c"), "SAVEPOINT s", insert("d"), "RELEASE SAVEPOINT s", "COMMIT")
		if flavor == testkit.MariaDB { // a table of another engine keeps the rollback in the log; MySQL with GTIDs forbids it
			l.session("CREATE TABLE other (id INT) ENGINE = MyISAM",
				"BEGIN", insert("rolled back with a trace"), "INSERT INTO other VALUES (1)", "ROLLBACK",
				"BEGIN", "SAVEPOINT s", insert("taken back with a trace"), "INSERT INTO other VALUES (1)", "ROLLBACK TO SAVEPOINT s", "COMMIT")
		}
		l.commit("e")
		l.account("settled", "a", "b", "c", "d", "e")
	})
}

// A killed session commits nothing.
func TestA32_KilledSession(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := prompt(t, flavor)
		l.session("BEGIN", insert(keys("never", 50)...)).close()
		l.commit("after")
		l.account("settled", "after")
	})
}

// What a transaction inserts and then changes is published as it was committed: once, with its last content, or not at all.
func TestRewrittenInTheSameTransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := prompt(t, flavor)
		first := func(key string) string {
			return "INSERT INTO t_local_message " + columns + " VALUES ('order', '" + key + "', 'orders', 'not the last word')"
		}
		l.session("BEGIN", first("updated"), "UPDATE t_local_message SET message_body = 'body of updated' WHERE biz_key = 'updated'", "COMMIT",
			"BEGIN", first("deleted"), "DELETE FROM t_local_message WHERE biz_key = 'deleted'", "COMMIT",
			"BEGIN", first("done by hand"), insert("beside it"), "UPDATE t_local_message SET status = 2 WHERE biz_key = 'done by hand'", "COMMIT")
		l.account("settled", "updated", "beside it")
		l.wantDeferred("rewritten", 4)
	})
}

// A row that does not begin as PENDING is none of ours.
func TestRowsOfOtherStates(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := prompt(t, flavor)
		for _, status := range []int{2, 3, 9} {
			l.exec(fmt.Sprintf("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, status) VALUES ('order', 'state%d', 'orders', 'x', %d)", status, status))
		}
		l.commit("after")
		l.wait("the row after", func() bool { return len(l.records()["after"]) > 0 })
		l.swept()
		l.compare("settled", "after")
		l.wantDeferred("status", 3)
	})
}

// A transaction over the limit is left to the sweep, which is told of it at once.
func TestTransactionOverTheLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := prompt(t, flavor, "pipeline: {max_transaction_bytes: 1MiB}")
		big, small := keys("big"+strings.Repeat("x", 100), 3000), keys("small", 50)
		l.session("BEGIN", insert(big[:1500]...), insert(big[1500:]...), "COMMIT")
		l.exec(insert(small...))
		l.account(append(append(big, small...), "settled")...)
		l.wantDeferred("oversize", 3000)
		if n := l.fromSweep(); n != 3000 {
			t.Errorf("%d rows came from the sweep", n)
		}
	})
}

// A20: compressed transactions of MySQL, which a session switches on, and restarts between them.
func TestA20_CompressedTransactions(t *testing.T) {
	t.Parallel()
	l := prompt(t, testkit.MySQL)
	s := l.session("SET SESSION binlog_transaction_compression = ON")
	want := []string{"settled"}
	for round := range 3 {
		one, many := fmt.Sprintf("one%d", round), keys(fmt.Sprintf("many%d-", round), 300)
		s.exec(insert(one), "BEGIN", insert(many[:100]...), insert(many[100:]...), "COMMIT")
		want = append(append(want, one), many...)
		l.sent()
		if n := l.fromSweep(); n != 0 {
			t.Errorf("%d rows came from the sweep", n)
		}
		l.account(want...)
		s.exec("BEGIN", insert(fmt.Sprintf("a%d", round)), insert(fmt.Sprintf("b%d", round)), "COMMIT")
		l.stop()
		want = append(want, fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round))
		l.start()
		l.settled(fmt.Sprintf("settled%d", round))
		want = append(want, fmt.Sprintf("settled%d", round))
	}
	l.account(want...)
}

// A20: MariaDB compresses events one by one.
func TestA20_CompressedEventsOfMariaDB(t *testing.T) {
	t.Parallel()
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB, Args: []string{"--log-bin-compress=ON", "--log-bin-compress-min-len=10"}})
	l := newLab(t, db)
	l.start()
	l.settled("settled")
	want := keys("many", 500)
	l.exec(insert(want...))
	l.commit("one")
	want = append(want, "one", "settled")
	l.account(want...)
	if n := l.fromSweep(); n != 0 {
		t.Errorf("%d rows came from the sweep", n)
	}
	l.stop()
	l.commit("while down")
	l.start()
	l.account(append(want, "while down")...)
}

// A25: row images that leave out what an INSERT did not name, with and without the names of columns in the log.
func TestA25_RowImages(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		nameless := nameless(t, flavor)
		for _, l := range []*lab{newLab(t, testkit.SharedDatabase(t, flavor)), newLab(t, nameless)} {
			l.start()
			l.settled("settled")
			for _, image := range []string{"FULL", "MINIMAL", "NOBLOB"} {
				l.session("SET SESSION binlog_row_image = '"+image+"'", insert(image))
			}
			l.account("settled", "FULL", "MINIMAL", "NOBLOB")
			if n := l.fromSweep(); n != 0 {
				t.Errorf("%d rows came from the sweep", n)
			}
		}
		everyKeyByTheLog(t, nameless)
	})
}

// everyKeyByTheLog: rows of every layout and with every kind of key come by the log where it does not name the columns, under short row
// images too.
func everyKeyByTheLog(t *testing.T, db *testkit.Database) {
	l := newEveryLayout(t, db, fake(t), append(layouts.All(), layouts.Keys()...)...)
	l.Start(t)
	l.insert(1, topics[0], true) // by the sweep; it also shows that the relay has looked at the columns
	for _, layout := range l.all {
		l.is(layout, 1, "sent", layout.Written)
	}
	before := l.metricBy("messages_total", "path")
	testkit.Exec(t, db.Root(), "SET GLOBAL binlog_row_image = MINIMAL") // for sessions that begin now
	l.sql.SetMaxIdleConns(0)
	for n := 2; n <= 3; n++ {
		l.insert(n, topics[0], false)
	}
	for _, layout := range l.all {
		l.is(layout, 2, "sent", layout.Written)
		l.is(layout, 3, "sent", layout.Written)
	}
	if paths := l.metricBy("messages_total", "path"); paths["binlog"]-before["binlog"] != float64(2*len(l.all)) || paths["sweep"] != before["sweep"] {
		t.Errorf("rows of the log went by %v, before by %v", paths, before)
	}
	l.noCopies(1, 3)
	l.stopInTime()
}

// nameless is a server whose log does not name the columns, which is what servers do by default.
func nameless(t *testing.T, flavor testkit.Flavor) *testkit.Database {
	t.Helper()
	metadata := "MINIMAL"
	if flavor == testkit.MariaDB {
		metadata = "NO_LOG"
	}
	return testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, Args: []string{"--binlog-row-metadata=" + metadata}})
}
