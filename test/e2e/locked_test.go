package e2e

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// P8: a start beside a table that another session has locked publishes the rows of the others, those that were committed before it too.
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
			holder := l.session("LOCK TABLES t_local_message WRITE")
			l.start()
			l.exec("INSERT INTO other " + columns + values(keys("after", 100)...))
			l.wait("the other table's rows to be SENT", func() bool { return l.number("SELECT COUNT(*) FROM other WHERE status <> 2") == 0 })
			holder.exec("UNLOCK TABLES")
			l.sent()
			l.stop()
		}
	})
}
