package fallback

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Successive pages are claimed at the same time, as many as there are workers, and go to the sink in the order of the list all the same.
func TestP5_PagesOverlapAndKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for id := range 40 {
			w.insert(old(id + 1))
		}
		var under, most, n atomic.Int64
		w.onClaim = func() error {
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			time.Sleep(100*time.Millisecond - time.Duration(n.Add(1))*3*time.Millisecond) // later ones are faster
			return nil
		}
		b := startWith(t, w, Config{Workers: 3, Batch: 4})
		time.Sleep(3 * time.Second)
		if got := b.got(); len(got) != 40 || !slices.IsSorted(got) {
			t.Errorf("published %v", got)
		}
		if most.Load() != 3 {
			t.Errorf("%d pages were claimed at a time, want 3", most.Load())
		}
	})
}

// P7: with a rate the pages come one after the other, whatever the workers.
func TestP7_ARateHasOneWorker(t *testing.T) {
	if n := (&Config{Workers: 8, Rate: 100}).workers(shop); n != 1 {
		t.Errorf("%d workers", n)
	}
	if n := (&Config{Workers: 8, Ordered: []string{shop}}).workers(shop); n != 1 {
		t.Errorf("%d workers where keys keep their order", n)
	}
}

// A page whose claim fails ends the list; what is under way comes to its end, nothing stays reserved, and the next sweep has the rest.
func TestD02_APageThatFailsAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for id := range 40 {
			w.insert(old(id + 1))
		}
		var n atomic.Int64
		w.onClaim = func() error {
			time.Sleep(50 * time.Millisecond)
			if n.Add(1) == 2 {
				return errGone
			}
			return nil
		}
		b := startWith(t, w, Config{Workers: 3, Batch: 4})
		time.Sleep(500 * time.Millisecond)
		if got := b.got(); len(got) == 0 || len(got) > 20 {
			t.Errorf("after the failure: published %v", got)
		}
		if n := b.count(t, "canal_outbox_sweep_runs_total", runFailed); n != 1 {
			t.Errorf("%v sweeps failed", n)
		}
		time.Sleep(10 * time.Second)
		got := b.got()
		slices.Sort(got)
		for i := range 40 {
			if i >= len(got) || got[i] != i+1 {
				t.Fatalf("published %v", got)
			}
		}
	})
}

// A stop amid overlapping pages leaves nothing reserved, and every claim is read back.
func TestStopAmidOverlappingPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for id := range 400 {
			w.insert(old(id + 1))
		}
		w.onClaim = func() error { time.Sleep(30 * time.Millisecond); return nil }
		b := startWith(t, w, Config{Workers: 4, Batch: 4})
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		b.stop() // looks for reservations
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stop took %v", took)
		}
		if n := len(b.got()); n == 0 || n == 400 {
			t.Errorf("%d rows were published: the stop was not amid the pages", n)
		}
	})
}
