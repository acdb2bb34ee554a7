package fallback

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// D02: the process died between claim and publish; claims of this process expire, those of the previous one are taken over at the
// start.
func TestD02_ExpiredClaimsAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1), old(2))
		claimed := func(id int, token string) {
			w.rows[id].status, w.rows[id].token, w.rows[id].claimed = outbox.Sending, token, time.Now()
		}
		claimed(1, "of the process before")
		w.rows[2].status = outbox.Sending // without a token
		b := start(t, w)
		want(t, "at start", b.got(), 1, 2)
		w.insert(old(3))
		w.mu.Lock()
		claimed(3, "of a claim whose read-back was lost")
		w.mu.Unlock()
		time.Sleep(59 * time.Second)
		want(t, "before the claim expires", b.got(), 1, 2)
		time.Sleep(32 * time.Second)
		want(t, "a claim timeout and an interval later", b.got(), 1, 2, 3)
		if n := b.count(t, "canal_outbox_sweep_rows_total", rowReclaimed); n != 3 {
			t.Errorf("reclaimed: %v", n)
		}
	})
}

// A claim of the process before whose topic is suspended, or whose key waits, stands until a sweep hands its row over.
func TestD02_ClaimsAreTakenOverAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1), old(2))
		for id := 1; id <= 2; id++ {
			w.rows[id].status, w.rows[id].token, w.rows[id].claimed = outbox.Sending, "of the process before", time.Now()
		}
		w.rows[2].topic, w.suspended["waits"] = "waits", true
		b := start(t, w)
		took := func(when string, want bool) {
			t.Helper()
			if got := b.TookOver(); got != want {
				t.Errorf("%s: %v", when, got)
			}
		}
		time.Sleep(2 * time.Second)
		want(t, "at start", b.got(), 1)
		took("while a row waits", false)
		time.Sleep(5 * time.Minute)
		took("when its claim has long expired", false)
		w.alter(func() { clear(w.suspended) })
		time.Sleep(time.Minute)
		want(t, "when it waits no more", b.got(), 1, 2)
		took("when it was handed over", true)
	})
}

// A row may be deferred to the sweep after the first sweep, and then be locked for minutes: the sweep that counts began when the relay asked.
func TestD02_ASweepAfterTheQuestionMustBeComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		b := start(t, w)
		time.Sleep(2 * time.Second)
		set(w, &w.onDue, func() error { return errGone })
		if want(t, "at start", b.got(), 1); b.TookOver() {
			t.Error("the sweep began before")
		}
		time.Sleep(10 * time.Minute)
		if b.TookOver() {
			t.Error("no sweep is complete")
		}
		set(w, &w.onDue, nil)
		time.Sleep(time.Minute)
		if !b.TookOver() {
			t.Error("no row is claimed")
		}
	})
}

// While a claim of a timer waits for a lock, or its rows are read, it is not certain that none is left, whatever sweeps find. Claims that are made
// after the question do not count: a table that always has some would never be done.
func TestD02_AClaimThatIsBeingMadeMayBeLost(t *testing.T) {
	for what, slow := range map[string]func(*world, func() error){
		"claim": func(w *world, f func() error) { set(w, &w.onClaim, f) },
		"read":  func(w *world, f func() error) { set(w, &w.onRead, f) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(waiting(1, 2, 10*time.Second, 0)...)
				b := start(t, w)
				var began atomic.Int32
				slow(w, func() error { began.Add(1); time.Sleep(5 * time.Minute); return nil })
				time.Sleep(15 * time.Second)
				for range 20 {
					if want(t, "while it waits", b.got()); began.Load() != 1 || b.TookOver() {
						t.Fatalf("%d claims, and their rows are not handed over", began.Load())
					}
					time.Sleep(10 * time.Second)
				}
				time.Sleep(2 * time.Minute)
				if want(t, "afterwards", b.got(), 1); !b.TookOver() {
					t.Error("they are handed over, and a later sweep found none")
				}
				w.insert(old(2))
				time.Sleep(time.Minute)
				if began.Load() != 2 || !b.TookOver() {
					t.Errorf("%d claims, and that of afterwards is waited for", began.Load())
				}
			})
		})
	}
}

// D02: at the first sweep the recovery window owns a row that the previous process had claimed; it releases such a row when it
// has checked it. The row must not wait until the claim expires.
func TestD02_ClaimThatTheCatchUpZoneHoldsAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		w.rows[1].status, w.rows[1].token, w.rows[1].claimed = outbox.Sending, "of the process before", time.Now()
		w.owned[w.rows[1].identity()] = true
		b := start(t, w)
		want(t, "while the window holds it", b.got())
		w.alter(func() { clear(w.owned) })
		time.Sleep(2 * time.Second)
		want(t, "when the window has let it go", b.got(), 1)
		time.Sleep(10 * time.Second)
		if n := look(w, &w.pages); n > 5 {
			t.Errorf("%d pages were read, though nothing was owned any more", n)
		}
	})
}
