package table

import (
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Rows that become due are shown by the database's clock, the first ones first, and no others, whatever index the table has.
func TestUpcoming(t *testing.T) {
	for _, layout := range layoutsOfTheIndex {
		if layout.noDue || layout.key != "" {
			continue
		}
		t.Run(layout.name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.reindex(layout)
				var want []outbox.Identity
				for _, set := range []string{"30 SECOND", "10 SECOND, retry_count=2", "-0.5 SECOND", "20 SECOND, retry_count=1"} {
					want = append(want, b.insert(1, "next_retry_time=NOW(3) + INTERVAL "+set)...)
				}
				want = []outbox.Identity{want[2], want[1], want[3], want[0]}
				b.insert(1, "")
				b.insert(1, "next_retry_time=NOW(3) - INTERVAL 1 MINUTE")
				b.insert(1, "next_retry_time=NOW(3) + INTERVAL 3 MINUTE")
				for _, status := range []string{"1", "2", "3", "9"} {
					b.insert(1, "next_retry_time=NOW(3) + INTERVAL 10 SECOND, status="+status)
				}
				for _, limit := range []int{100, 4, 2, 1} {
					got, err := b.store.Upcoming(b.ctx, b.table.Name(), -30*time.Second, time.Minute, limit)
					testkit.Must(b, err)
					var ids []outbox.Identity
					for _, c := range got {
						if c.Waiting != (c.DueInMilli > 0) || c.Topic == "" {
							b.Errorf("%+v", c)
						}
						ids = append(ids, c.Identity)
					}
					if !slices.Equal(ids, want[:min(limit, len(want))]) {
						b.Errorf("limit %d: got %v, want %v", limit, ids, want)
					}
				}
			})
		})
	}
}

// Where the index has the due times in order, the look at the rows that become due is a range of it, however many wait.
func TestUpcomingReadsTheIndexInItsOrder(t *testing.T) {
	for _, layout := range layoutsOfTheIndex {
		if layout.strategy != byDue && layout.strategy != byAttempts || layout.key != "" {
			continue
		}
		t.Run(layout.name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.insertMany(3000)
				testkit.Exec(b, b.db, "UPDATE "+b.name+" SET next_retry_time=NOW(3) + INTERVAL id SECOND")
				b.reindex(layout)
				testkit.Exec(b, b.db, "ANALYZE TABLE "+b.name)
				b.inOrder("a look", b.table.upcoming(attemptCount{known: true, value: "0"}, -time.Second, time.Minute, 10), layout.strategy, false)
			})
		})
	}
}
