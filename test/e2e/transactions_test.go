package e2e

import (
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

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

// A25: rows of every layout and with every kind of key come by the log where it does not name the columns, under short row images too.
func TestA25_EveryKeyByALogWithoutNames(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) { everyKeyByTheLog(t, nameless(t, flavor)) })
}

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
