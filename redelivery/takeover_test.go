package redelivery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// G16: a relay that takes over does not have the other's counts. It adds no redelivery to a row, whenever it takes over, also
// when it is killed before all rows are counted; rows that are due later are sent as often as configured.
func TestG16_ATakeOverAddsNoRedelivery(t *testing.T) {
	for _, killed := range []bool{false, true} {
		for before := range 5 {
			synctest.Test(t, func(t *testing.T) {
				w := sentWorld(3)
				cfg := again(10*time.Minute, 3, "")
				_, stop := run(t, w, cfg, &memory{w: w})
				time.Sleep(time.Duration(before)*10*time.Minute + 5*time.Minute)
				stop()
				had := w.copied()[1]
				w.set(func() {
					w.ledger = map[outbox.Identity]table.Wait{} // another state directory
					w.closed = killed
				})
				cfg.TakenOver = func() bool { return true }
				_, stop = run(t, w, cfg, &memory{w: w})
				time.Sleep(time.Minute)
				if killed {
					stop()
					w.set(func() { w.closed = false })
					cfg.TakenOver = nil // it already holds the lease now
					_, stop = run(t, w, cfg, &memory{w: w})
				}
				defer stop()
				w.set(func() { w.sent[4], w.since[4] = true, time.Now() })
				time.Sleep(2 * time.Hour)
				if n := w.copied()[1]; n != 3 {
					t.Errorf("killed %v: %d copies before the take-over, %d in all, want 3", killed, had, n)
				}
				if n := w.copied()[4]; n != 3 {
					t.Errorf("killed %v: a row that was SENT after the take-over has %d copies", killed, n)
				}
				if _, left := w.records()[takenOver(name)]; left {
					t.Error("the take-over is still recorded")
				}
			})
		}
	}
}
