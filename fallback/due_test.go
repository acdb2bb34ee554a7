package fallback

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Whatever waits in the table, a row is published at its time: right after the start, while thousands of others wait, and when
// there are more rows than timers. Statements take time.
func TestRowsArePublishedWhenTheyAreDue(t *testing.T) {
	for name, timers := range map[string]int{"room for all": 0, "little room": 50} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(waiting(1, 2001, 50*time.Millisecond, 40*time.Second)...)
				w.insert(waiting(10_000, 11_000, time.Hour, time.Hour)...)
				w.slow(2 * time.Millisecond)
				b := startWith(t, w, Config{Timers: timers})
				time.Sleep(41 * time.Second)
				b.wantInTime(t, 2000)
				if n := look(w, &b.passes); n > 2000 {
					t.Errorf("%d passes for 2000 rows", n)
				}
			})
		})
	}
}

// A long sweep, here because its query hangs, delays no row that becomes due.
func TestALongSweepDelaysNoRowThatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 101, time.Second, 10*time.Second)...)
		w.onDue = func() error { time.Sleep(time.Hour); return nil }
		b := start(t, w)
		time.Sleep(20 * time.Second)
		b.wantInTime(t, 100)
	})
}

// Rows that become due within a short time are published together.
func TestRowsThatAreDueTogetherGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 1001, 5*time.Second, time.Second)...)
		b := start(t, w)
		time.Sleep(10 * time.Second)
		b.wantInTime(t, 1000)
		if n := look(w, &b.passes); n > int(time.Second/timerGap)+2 {
			t.Errorf("%d passes in a second", n)
		}
	})
}

// An announced row is published at its time although no look has found it: also one announced half way, and one with a distant
// due time.
func TestAnnouncedRows(t *testing.T) {
	for name, c := range map[string]struct{ due, announced time.Duration }{
		"half way":                   {10 * time.Second, 5 * time.Second},
		"when it is due":             {10 * time.Second, 10 * time.Second},
		"100 ms early":               {10 * time.Second, 9900 * time.Millisecond},
		"with the next look":         {30 * time.Second, 15 * time.Second},
		"seen by the next two looks": {70 * time.Second, 35 * time.Second},
		"far away":                   {3 * time.Hour, 90 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				b := start(t, w)
				time.Sleep(2 * time.Second)
				r := old(1)
				r.due = time.Now().Add(c.due)
				w.insert(r)
				b.DueIn(r.identity(), c.announced)
				time.Sleep(c.due - 2*nearlyDue)
				want(t, "before its time", b.got())
				time.Sleep(promised + 2*nearlyDue)
				b.wantInTime(t, 1)
			})
		})
	}
}

// Changes of a row before its time count: the table is read again.
func TestRowsThatChangeWhileTheyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 6, 5*time.Second, 0)...)
		b := start(t, w)
		time.Sleep(time.Second)
		w.alter(func() {
			w.rows[1].due = w.rows[1].due.Add(5 * time.Second)
			w.rows[2].status = outbox.Held
			w.rows[3].status = outbox.Sent
			delete(w.rows, 4)
		})
		time.Sleep(5 * time.Second)
		want(t, "at the first time", b.got(), 5)
		time.Sleep(5 * time.Second)
		want(t, "at the new time", b.got(), 5, 1)
		b.wantInTime(t, 2)
	})
}

// A row is due while its last refusal is still being written to the table, so it is owned: it is published when its owner has
// released it. The sweep publishes one that stays owned.
func TestADueRowThatSomebodyHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 3, 5*time.Second, 0)...)
		for _, r := range w.rows {
			w.owned[r.identity()] = true
		}
		b := start(t, w)
		time.Sleep(5*time.Second + 300*time.Millisecond)
		want(t, "the rows are owned", b.got())
		w.alter(func() { delete(w.owned, w.rows[1].identity()) })
		time.Sleep(promised)
		want(t, "a row is free", b.got(), 1)
		time.Sleep(time.Second)
		passes := look(w, &b.passes)
		time.Sleep(time.Second)
		if n := look(w, &b.passes) - passes; n > 2 {
			t.Errorf("%d looks in a second at a row that is the sweep's", n)
		}
		w.alter(func() { clear(w.owned) })
	})
}

// The clock of the database is set: rows are due by it, whatever the timers expect.
func TestAClockThatIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 2, 5*time.Second, 0)...)
		b := start(t, w)
		time.Sleep(time.Second)
		w.alter(func() { w.rows[1].due = w.rows[1].due.Add(time.Minute) }) // like all rows of the table
		time.Sleep(time.Minute)
		want(t, "a minute later", b.got())
		time.Sleep(5 * time.Second)
		b.wantInTime(t, 1)
	})
}

// While the broker accepts nothing timers hardly query the database. Rows that became due are published when it is back.
func TestOpenBreakerStopsTheTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 1001, 10*time.Second, 20*time.Minute)...)
		b := start(t, w)
		time.Sleep(5 * time.Second)
		w.alter(func() { w.open = true })
		time.Sleep(10 * time.Minute)
		want(t, "breaker open", b.got())
		w.alter(func() {
			if w.passes+w.looks+w.pages > 100 || w.tokens != 0 {
				t.Errorf("%d passes, %d looks, %d pages, %d claims in ten minutes", w.passes, w.looks, w.pages, w.tokens)
			}
			w.open = false
		})
		b.Trigger() // as the flow does
		time.Sleep(triggerGap + promised)
		if n, due := len(b.got()), 496; n < due {
			t.Errorf("%d of %d rows were published when the broker was back", n, due)
		}
		time.Sleep(20 * time.Minute)
		if n := len(b.got()); n != 1000 {
			t.Errorf("%d of 1000 rows were published", n)
		}
	})
}

// While the database does not answer timers pause. Then the rows are published; the sweep publishes those that are long overdue.
func TestTimersWithoutADatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 101, 10*time.Second, 10*time.Minute)...)
		b := start(t, w)
		var asked atomic.Int64
		var back atomic.Bool
		fail := func() error {
			if asked.Add(1); !back.Load() {
				return errGone
			}
			return nil
		}
		time.Sleep(5 * time.Second)
		w.alter(func() { w.onDue, w.onLook, w.onStates = fail, fail, fail })
		time.Sleep(5 * time.Minute)
		if n := asked.Load(); n > 60 {
			t.Errorf("%d statements in five minutes", n)
		}
		back.Store(true)
		time.Sleep(time.Minute)
		if n := len(b.got()); n < 58 {
			t.Errorf("%d rows were published a minute later", n)
		}
		time.Sleep(5 * time.Minute)
		if n := len(b.got()); n != 100 {
			t.Errorf("%d of 100 rows were published", n)
		}
	})
}

// A failed statement delays a row by a short time, and the sweep takes over a row whose claim got no answer at once.
func TestATimersStatementThatFails(t *testing.T) {
	for name, breakIt := range map[string]func(*world, func() error){
		"states":    func(w *world, f func() error) { set(w, &w.onStates, f) },
		"claim":     func(w *world, f func() error) { set(w, &w.onClaim, f) },
		"read back": func(w *world, f func() error) { set(w, &w.onRead, f) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(waiting(1, 2, 5*time.Second, 0)...)
				b := start(t, w)
				failures := 0
				breakIt(w, func() error {
					if failures++; failures == 1 {
						return errGone
					}
					return nil
				})
				time.Sleep(5*time.Second + 2*triggerGap)
				want(t, "soon", b.got(), 1)
			})
		})
	}
}

// Claims of timers do not count as claims of an earlier process, also before the first complete sweep of a table.
func TestClaimsOfTimersAreNoEarlierOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 2001, 0, 20*time.Second)...)
		w.slow(10 * time.Millisecond)
		b := start(t, w)
		w.mu.Lock()
		w.onPublish = func(id int) { // the table shows it later
			w.rows[id].status = outbox.Sending
			time.AfterFunc(50*time.Millisecond, func() { w.alter(func() { w.rows[id].status = outbox.Sent; delete(w.owned, w.rows[id].identity()) }) })
		}
		w.mu.Unlock()
		time.Sleep(25 * time.Second)
		if n := len(b.got()); n != 2000 {
			t.Errorf("%d of 2000 rows were published", n)
		}
		if n := look(w, &b.pages); n > 10 {
			t.Errorf("%d pages were read in 25 seconds", n)
		}
	})
}

// Rows of the model are published once whether a sweep, a timer or both at the same time find them.
func TestSweepAndTimersPublishOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 1001, time.Second, 9*time.Second)...)
		w.slow(30 * time.Millisecond)
		b := start(t, w)
		for range 40 {
			b.Trigger()
			time.Sleep(500 * time.Millisecond)
		}
		seen := map[int]bool{}
		for _, id := range b.got() {
			if seen[id] {
				t.Errorf("%d was published twice", id)
			}
			seen[id] = true
		}
		if len(seen) != 1000 {
			t.Errorf("%d of 1000 rows", len(seen))
		}
	})
}

// A row that was found in the table but not in the log is not published before the log was offered up to there: the log could
// bring it, too.
func TestTimersWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 2, 5*time.Second, 0)...)
		w.offered = 500
		b := start(t, w)
		for range 14 {
			time.Sleep(500 * time.Millisecond)
			w.alter(func() { w.offered++ })
		}
		want(t, "the reader is behind", b.got())
		w.alter(func() { w.offered = 1000 })
		want(t, "the reader is there", b.got(), 1)
		if w.window != 0 {
			t.Error("the window was raised")
		}
	})
}

// More and more rows are announced: timers keep the first ones, up to their limit.
func TestTimersAreBounded(t *testing.T) {
	const limit, rows = 1000, 100_000
	list := newTimers(limit, time.Hour)
	began := time.Now()
	for i := range rows {
		at := i * 7919 % rows // in no order
		list.add(outbox.Identity{Table: shop, ID: fmt.Sprint(at), MessageID: fmt.Sprint("m", at)}, began.Add(time.Duration(at)*time.Millisecond), nil)
		if n := list.len(); n > limit || len(list.rows.index) != n {
			t.Fatalf("%d rows are kept, %d known", n, len(list.rows.index))
		}
	}
	if n := list.len(); n < limit/2 {
		t.Fatalf("%d rows are kept", n)
	}
	kept := list.len()
	for i := range kept {
		due, _, _ := list.take(began.Add(time.Duration(i)*time.Millisecond), 500)
		if len(due) != 1 || due[0].row.ID != fmt.Sprint(i) {
			t.Fatalf("%v are due first, want %d", due, i)
		}
	}
	if list.wait(began.Add(time.Duration(kept)*time.Millisecond)) > timerGap {
		t.Error("there is room and no look for the others")
	}
}

// G10: more rows are due than there are timers, and none of them can be sent now. Rows that become due later are published at their time, and the
// table is not queried repeatedly.
func TestG10_DueRowsDelayNoOthers(t *testing.T) {
	for why, of := range map[string]func(w *world, r *row){
		"they wait for an earlier row of their keys":          func(w *world, r *row) { r.topic, w.suspended["waits"] = "waits", true },
		"they are owned, and their status is not written yet": func(w *world, r *row) { w.owned[r.identity()] = true },
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(waiting(1, 101, 5*time.Second, 200*time.Millisecond)...)
				for _, r := range w.rows {
					of(w, r)
				}
				w.insert(waiting(1001, 1041, 5300*time.Millisecond, 600*time.Millisecond)...)
				w.slow(time.Millisecond)
				b := startWith(t, w, Config{Timers: 50})
				time.Sleep(4 * time.Second)
				looks := look(w, &w.looks)
				time.Sleep(4 * time.Second)
				b.wantInTime(t, 40)
				if n := look(w, &w.looks) - looks; n > 20 {
					t.Errorf("%d looks at the table in 4 s", n)
				}
				w.alter(func() { clear(w.owned) })
			})
		})
	}
}

// A row is announced while there is no room in the timers, and the table shows it only after the look that follows when there is. It is published
// at its time.
func TestAnnouncedRowThatTheTableShowsAfterTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 3, 5*time.Second, 2*time.Second)...)
		b := startWith(t, w, Config{Timers: 2})
		time.Sleep(4900 * time.Millisecond)
		r := old(9)
		r.due = time.Now().Add(10 * time.Second)
		b.DueIn(r.identity(), 10*time.Second)
		time.Sleep(300 * time.Millisecond) // the first row has gone, and the table was looked at
		w.insert(r)
		time.Sleep(10 * time.Second)
		b.wantInTime(t, 3)
	})
}
