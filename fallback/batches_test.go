package fallback

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Successive batches are claimed concurrently, one per worker, and are sent to the sink in the order of the list.
func TestP5_BatchesOverlapAndKeepTheirOrder(t *testing.T) {
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
			t.Errorf("%d batches were claimed at a time, want 3", most.Load())
		}
	})
}

// P7: the broker goes away during a page of many batches: claimed rows are sent to the sink, which waits, and nothing more is
// claimed. The sweep waits for the reader when it starts again at an earlier position.
func TestEachBatchAsksTheFlow(t *testing.T) {
	for name, change := range map[string]func(*world){
		"broker away": func(w *world) { w.open = true },
		"reader back": func(w *world) { w.offered = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				for id := range 100 {
					w.insert(old(id + 1))
				}
				w.onPublish = func(id int) {
					w.rows[id].status = outbox.Sent
					delete(w.owned, w.rows[id].identity())
					if id == 20 { // of the fourth page: 15 to 30
						change(w)
					}
				}
				w.onClaim = func() error { time.Sleep(time.Millisecond); return nil }
				b := startWith(t, w, Config{Batch: 2})
				time.Sleep(time.Second)
				if got := b.got(); len(got) < 20 || len(got) > 26 {
					t.Errorf("published %v", got)
				}
				w.alter(func() { w.open, w.offered = false, 1000 })
				b.Trigger()
				time.Sleep(2 * time.Second)
				if got := b.got(); len(got) != 100 {
					t.Errorf("at the end: published %v", got)
				}
			})
		})
	}
}

// P7: with a rate, and where keys keep their order, a batch is listed when the previous one was sent to the sink, whatever the
// workers.
func TestP7_ARateLetsNothingOverlap(t *testing.T) {
	for name, cfg := range map[string]Config{
		"rate":    {Workers: 8, Batch: 4, Rate: 1000},
		"ordered": {Workers: 8, Batch: 4, Ordered: []string{shop}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				for id := range 8 {
					w.insert(old(id + 1))
				}
				w.onClaim = func() error { time.Sleep(30 * time.Millisecond); return nil }
				startWith(t, w, cfg)
				time.Sleep(500 * time.Millisecond)
				page := []string{"due", "end", "reserve", "claim", "publish"}
				if want := append(slices.Concat(page, page), "due"); !slices.Equal(look(w, &w.calls)[:len(want)], want) {
					t.Errorf("got %v, want %v first", w.calls, want)
				}
			})
		})
	}
}

// A batch whose claim fails ends the list; running batches are finished, nothing stays reserved, and the next sweep has the rest.
func TestD02_ABatchThatFailsAmongOthers(t *testing.T) {
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

// A stop during overlapping batches leaves nothing reserved, every claim is read back, and no more are made.
func TestStopAmidOverlappingBatches(t *testing.T) {
	for _, workers := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			for id := range 400 {
				w.insert(old(id + 1))
			}
			w.onClaim = func() error { time.Sleep(15 * time.Millisecond); return nil }
			w.onRead = func() error { time.Sleep(5 * time.Millisecond); return nil }
			b := startWith(t, w, Config{Workers: workers, Batch: 4})
			time.Sleep(100*time.Millisecond + time.Microsecond) // not when a claim ends
			synctest.Wait()
			began, claims := time.Now(), look(w, &w.tokens)
			b.stop() // checks for reservations
			if took := time.Since(began); took > time.Second {
				t.Errorf("the stop took %v", took)
			}
			if n := len(b.got()); n == 0 || n == 400 {
				t.Errorf("%d rows were published: the stop was not amid the batches", n)
			}
			if n := look(w, &w.tokens) - claims; n != 0 {
				t.Errorf("%d workers: %d claims were made after the stop", workers, n)
			}
		})
	}
}

// A stop releases the claims of rows that are not handed over: the sink has no room, or another batch is before them.
func TestG47_AStopReleasesClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1), old(2))
		reading := make(chan struct{})
		w.onRead = func() error { close(reading); time.Sleep(time.Second); return nil }
		b := start(t, w)
		<-reading
		b.stop()
		if got := look(w, &w.returned); len(got) != 2 || len(b.got()) != 0 {
			t.Errorf("claims of %v are released, %v published", got, b.got())
		}
	})
}

// Return stands for ack as well: the claim is released.
func (w *world) Return(rows []outbox.Candidate, claim string) {
	w.Release(rows)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range rows {
		id, _ := strconv.Atoi(c.ID)
		if r := w.rows[id]; r != nil && r.token == claim {
			w.returned = append(w.returned, id)
		}
	}
}
