package fallback

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A sweep of a table with a backlog takes minutes: rows of another table, which were there before or come meanwhile, do not wait for its end, and neither
// do rows that are younger than the threshold once a sweep is requested. The table with the backlog keeps its order.
func TestABacklogDelaysNoOtherTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 3000 // at 125 a second: 24 s
		w := newWorld(old(backlog + 1))
		for id := range backlog {
			w.insert(&row{id: id + 1, table: second, created: time.Now().Add(-time.Hour), topic: "orders"})
		}
		w.onClaim = func() error { time.Sleep(80 * time.Millisecond); return nil }
		b := startWith(t, w, Config{Tables: []string{second}, Batch: 10}) // before shop
		// within waits that long, and checks that a row was published then, and not behind the backlog.
		within := func(what string, id int, d time.Duration) {
			t.Helper()
			time.Sleep(d)
			got := b.got()
			if len(got) >= backlog {
				t.Fatalf("%s: the backlog has ended", what)
			}
			if !slices.Contains(got, id) {
				t.Errorf("%s: not published after %v and %d rows", what, d, len(got))
			}
		}
		const page = 8 * 80 * time.Millisecond // it is not interrupted
		within("a row that was there", backlog+1, share+page+time.Second)
		w.insert(old(backlog + 2))
		within("a row that comes meanwhile", backlog+2, relist+share+page+time.Second)
		w.insert(&row{id: backlog + 3, topic: "orders"})
		b.Trigger()
		within("a young row", backlog+3, relist+share+page+time.Second)
		time.Sleep(time.Minute)
		got := slices.DeleteFunc(b.got(), func(id int) bool { return id > backlog })
		if len(got) != backlog || !slices.IsSorted(got) {
			t.Errorf("%d rows of %d were published, in their order: %v", len(got), backlog, slices.IsSorted(got))
		}
		if len(w.sweeps) == 0 || w.sweeps[0].Untried != backlog+3 {
			t.Errorf("sweeps %+v", w.sweeps)
		}
	})
}

// A table that cannot be listed does not end the list of another. It is listed again meanwhile, and the sweep fails if that does not help.
func TestATableThatFailsEndsNoOtherList(t *testing.T) {
	for name, away := range map[string]time.Duration{"for ever": time.Hour, "for a while": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const backlog = 1000 // 10 s
				w := newWorld()
				w.onClaim = func() error { time.Sleep(100 * time.Millisecond); return nil }
				b := startWith(t, w, Config{Tables: []string{second}, Batch: 10})
				time.Sleep(time.Second)
				for id := range backlog {
					w.insert(&row{id: id + 1, table: second, created: time.Now().Add(-time.Hour), topic: "orders"})
				}
				w.insert(&row{id: backlog + 1, topic: "orders"}) // younger than the threshold
				b.alter(func() { w.gone, w.sweeps = shop, nil })
				b.Full()
				time.Sleep(away)
				set(w, &w.gone, "")
				time.Sleep(30*time.Second - away)
				failed, want := b.logs.FilterMessage("sweep failed, retrying").Len(), backlog+1
				if away > time.Minute {
					failed, want = 1-failed, backlog
				}
				if n := len(b.got()); n != want || failed != 0 || (len(w.sweeps) == 0 || !w.sweeps[0].AnyAge || w.sweeps[0].Untried != want) != (away > time.Minute) {
					t.Errorf("%d rows of %d were published, sweeps %v, logged %v", n, want, w.sweeps, b.logs.All())
				}
			})
		})
	}
}

// Tables that are locked fail after two seconds, again and again: together they take a tenth of the time from the backlog of another.
func TestALockedTableTakesLittleTimeFromABacklog(t *testing.T) {
	for most, tables := range map[int][]string{
		2: {locked},
		7: {locked, locked + "2", locked + "3", locked + "4", locked + "5"}, // once each, and the first ones again
	} {
		synctest.Test(t, func(t *testing.T) {
			const backlog = 3000 // 30 s
			w := newWorld()
			w.onClaim = func() error { time.Sleep(100 * time.Millisecond); return nil }
			for id := range backlog {
				w.insert(&row{id: id + 1, table: second, created: time.Now().Add(-time.Hour), topic: "orders"})
			}
			w.refusal = 2 * time.Second
			b := startWith(t, w, Config{Tables: append(tables, second), Batch: 10})
			time.Sleep(31*time.Second + time.Duration(most)*w.refusal)
			if n := len(b.got()); n != backlog || look(w, &w.refused) > most {
				t.Errorf("%d rows of %d were published, and the %d other tables were asked %d times", n, backlog, len(tables), look(w, &w.refused))
			}
		})
	}
}

// A table gets a backlog while another one has its own, which ends first: the next sweep continues at once.
func TestABacklogThatComesLaterGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 1000 // 8 s
		w := newWorld()
		w.onClaim = func() error { time.Sleep(80 * time.Millisecond); return nil }
		for id := range backlog {
			w.insert(&row{id: id + 1, table: second, created: time.Now().Add(-time.Hour), topic: "orders"})
		}
		b := startWith(t, w, Config{Tables: []string{second}, Batch: 10})
		time.Sleep(3 * time.Second)
		for id := range backlog {
			w.insert(old(backlog + id + 1))
		}
		time.Sleep(17 * time.Second)
		if n := len(b.got()); n != 2*backlog {
			t.Errorf("%d rows of %d were published", n, 2*backlog)
		}
	})
}
