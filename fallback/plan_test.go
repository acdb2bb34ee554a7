package fallback

import (
	"testing"
	"testing/synctest"
	"time"
)

// A row that was written after the last sweep and becomes due before the next is published in time, not an interval late.
func TestRowThatBecomesDueBeforeTheNextSweep(t *testing.T) {
	for name, c := range map[string]struct{ due, look time.Duration }{
		"looked at half way":            {10 * time.Second, 5 * time.Second},
		"looked at when it is due":      {10 * time.Second, 10 * time.Second},
		"due with the next sweep":       {28 * time.Second, 28 * time.Second},
		"seen by the next two sweeps":   {70 * time.Second, 70 * time.Second},
		"the look falls behind a sweep": {40 * time.Second, 29900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				b := start(t, w)
				time.Sleep(time.Second)
				r := old(1)
				r.due = time.Now().Add(c.due)
				w.insert(r)
				b.SweepIn(c.look)
				time.Sleep(c.due - time.Millisecond)
				want(t, "before its time", b.got())
				time.Sleep(2*dueGap + 2*time.Millisecond)
				want(t, "at its time", b.got(), 1)
			})
		})
	}
}

// However many rows are announced, sweeps for them keep a pause, and each is made.
func TestManyRowsThatBecomeDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b := start(t, w)
		before := look(w, &w.pages)
		for i := range 10_000 {
			b.SweepIn(5*time.Second + time.Duration(i)*100*time.Microsecond)
		}
		b.Triggers.mu.Lock()
		kept := len(b.looks)
		b.Triggers.mu.Unlock()
		if kept > 11 {
			t.Errorf("%d times are kept", kept)
		}
		time.Sleep(10 * time.Second)
		if n := look(w, &w.pages) - before; n < 10 || n > 12 {
			t.Errorf("%d pages were read in the second of 10,000 due times", n)
		}
	})
}
