package e2e

import (
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// While the sweep works off a large backlog of the table, rows that are committed now do not queue up behind it: they come
// through the log and are SENT while most of the backlog waits.
func TestP7_D17_FreshRowsOvertakeABacklog(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), "")
			const waiting, fresh = 40_000, 10
			l.fill(waiting) // before the first start, so the log does not show it
			l.Start(t)
			left := func() int { return l.table.Count(t, "biz_type = 'backlog' AND status <> 2") }
			l.wait("the backlog to begin to go", func() bool { return left() < waiting })
			begun := left()
			for n := range fresh {
				key := fmt.Sprint("fresh", n)
				l.row(key, topics[0], "body")
				l.waitCount(1, "biz_key = '"+key+"' AND status = 2")
			}
			after := left()
			t.Logf("%d fresh rows, one after the other, became SENT while the backlog went from %d to %d rows", fresh, begun, after)
			// Behind the backlog the first of them alone would have waited for all of it.
			if after == 0 {
				t.Error("the fresh rows came after the backlog")
			}
			l.waitCount(0, "status <> 2 OR retry_count <> 0")
			for key, n := range l.published(topics[0]) {
				if n > 1 {
					t.Errorf("%s was published %d times", key, n)
				}
			}
			l.stopInTime()
		})
	}
}
