package fallback

import (
	"testing"
	"testing/synctest"
	"time"
)

// P7: a backlog of the table is published at the configured rate, and a stop does not wait for it.
func TestP7_TheRateOfSweepsIsBounded(t *testing.T) {
	for name, c := range map[string]struct{ rate, batch int }{"a page is a second": {100, 500}, "a page is a batch": {100, 7}, "one a second": {1, 500}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				for id := range 12 * c.rate {
					w.insert(old(id + 1))
				}
				w.onEnd = func() error { time.Sleep(3 * time.Millisecond); return nil } // the time of the work counts
				b := startWith(t, w, Config{Rate: c.rate, Batch: c.batch})
				page := min(c.rate, c.batch)
				for second := range 10 {
					if n, most := len(b.got()), second*c.rate+page; n > most || n < second*c.rate-page {
						t.Errorf("after %d s: %d rows, want about %d", second, n, most)
					}
					time.Sleep(time.Second)
				}
				began := time.Now()
				b.stop()
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("the stop took %v", took)
				}
			})
		})
	}
}
