package e2e

import (
	"context"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// P8: a start with a table that no other session can read publishes the rows of the others, those that were committed before it too. Another session has
// locked it, or an ALTER TABLE waits for a transaction.
func TestP8_AStartBesideALockedTable(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}) // where no other test decides on branches
		for _, mapping := range []string{"", ", ordering: key"} {
			l := newLab(t, db)
			l.table("other")
			l.mapping, l.more = mapping, "fallback: {interval: 1s, threshold: 1s}"
			l.start()
			l.commit("first")
			l.sent()
			l.stop()
			for _, table := range []string{"t_local_message", "other"} {
				l.exec("INSERT INTO " + table + " " + columns + values(keys("between", 100)...))
			}
			holder, free, altered := l.session(), "UNLOCK TABLES", make(chan error, 1)
			if mapping == "" {
				free = "COMMIT"
				holder.exec("BEGIN", "SELECT COUNT(*) FROM t_local_message")
				go func() {
					_, err := l.sql.ExecContext(context.Background(), "ALTER TABLE t_local_message ADD COLUMN more INT")
					altered <- err
				}()
				l.wait("the ALTER TABLE to wait", func() bool {
					return l.number("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = ? AND STATE LIKE '%metadata lock%'", l.schema) > 0
				})
			} else {
				holder.exec("LOCK TABLES t_local_message WRITE")
				altered <- nil
			}
			l.start()
			l.exec("INSERT INTO other " + columns + values(keys("after", 100)...))
			l.wait("the other table's rows to be SENT", func() bool { return l.number("SELECT COUNT(*) FROM other WHERE status <> 2") == 0 })
			locked := false
			for _, f := range app.Doctor(t.Context(), l.config()) {
				if f.Severity == server.Fault {
					t.Errorf("doctor: %s: %s", f.Subject, f.What)
				}
				locked = locked || f.Severity == server.NotChecked && f.Subject == l.schema+".t_local_message"
			}
			if !locked {
				t.Error("doctor does not name the locked table")
			}
			holder.exec(free)
			testkit.Must(t, <-altered)
			l.sent()
			l.stop()
		}
	})
}
