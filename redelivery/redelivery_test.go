package redelivery

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// A row is tried again when it has been FAILED for the configured time, not sooner and little later, and again after each
// failure; a sent row is not, and an owned one or one of a suspended topic is skipped.
func TestFailedRowsAreTriedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 6 * time.Hour
		w := newWorld(5)
		w.since[2] = time.Now().Add(-every) // of an earlier run
		w.good[3], w.owned[4], w.topics[5] = true, true, true
		r, _ := begin(t, w, every, &memory{w: w})
		time.Sleep(25 * time.Hour)
		for n, want := range map[int]int{1: 4, 2: 5, 3: 1, 4: 0, 5: 0} {
			if got := w.tried(n); got != want {
				t.Errorf("row %d was tried %d times, want %d", n, got, want)
			}
		}
		for i, at := range w.triesOf(1) {
			if i > 0 && (at.Sub(w.triesOf(1)[i-1]) < every || at.Sub(w.triesOf(1)[i-1]) > every+10*time.Minute) {
				t.Errorf("tried after %v", at.Sub(w.triesOf(1)[i-1]))
			}
		}
		s, ok := r.State(name)
		if !ok || s.Retried != 10 || s.Error != "" || counted(r.metrics.retried.WithLabelValues(name)) != 10 || w.reported() != 10 || w.reserved() != 0 {
			t.Errorf("%+v, %d reported, %d held", s, w.reported(), w.reserved())
		}
	})
}

// Rows that do not record when they failed are tried again in passes; restarts neither repeat nor delay a pass.
func TestRowsThatDoNotSayWhenTheyFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 6 * time.Hour
		w := newWorld(3)
		waits := &memory{w: w}
		w.undated = true
		for range 10 { // restarts, none of them at the time of a pass
			_, stop := begin(t, w, every, waits)
			time.Sleep(5*time.Hour + 7*time.Minute)
			stop()
		}
		for n := 1; n <= 3; n++ {
			if got := w.tried(n); got != 8 { // at 6, 12, .. 48 hours
				t.Errorf("row %d was tried %d times", n, got)
			}
		}
		_, stop := begin(t, w, time.Hour, waits) // the configuration has changed
		time.Sleep(61 * time.Minute)
		stop()
		if got := w.tried(1); got != 9 {
			t.Errorf("row 1 was tried %d times", got)
		}
	})
}

// A state directory that cannot store is retried at growing intervals: without the record of a pass there is none.
func TestThePassCannotBeNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.undated = true
		waits := &memory{w: w}
		r, _ := begin(t, w, time.Minute, waits)
		time.Sleep(30 * time.Second)
		w.set(func() { waits.full = errors.New("a full disk") })
		time.Sleep(10 * time.Minute)
		if s, _ := r.State(name); s.Error != "a full disk" || w.tried(1) != 0 {
			t.Errorf("%+v, tried %d times", s, w.tried(1))
		}
		w.set(func() { waits.full = nil })
		time.Sleep(10 * time.Minute)
		if s, _ := r.State(name); s.Error != "" || w.tried(1) == 0 {
			t.Errorf("%+v, tried %d times", s, w.tried(1))
		}
	})
}

// Many rows are reset slowly, and none while the broker is away.
func TestManyFailedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(10_000)
		for n := range w.since {
			w.since[n], w.good[n] = time.Now().Add(-time.Hour), true
		}
		began := time.Now()
		begin(t, w, time.Minute, &memory{w: w})
		time.Sleep(59 * time.Second) // between two batches
		w.set(func() { w.closed = true })
		before := w.rowsTried()
		time.Sleep(time.Minute)
		if grown := w.rowsTried() - before; before < 2000 || before > 3500 || grown > 0 {
			t.Errorf("%d rows in almost a minute, %d while the broker was away", before, grown)
		}
		w.set(func() { w.closed = false })
		for w.rowsTried() < 10_000 {
			time.Sleep(time.Second)
		}
		if took := time.Since(began) - time.Minute; took < 180*time.Second || took > 240*time.Second {
			t.Errorf("10,000 rows took %v", took)
		}
	})
}

// A page takes long. A row of it that an operator has retried since, and that has failed again, waits for its full time from then on.
func TestRowThatFailsAgainAfterASlowPage(t *testing.T) {
	duringASlowPage(t, 15*time.Second, time.Hour-time.Second, func(w *world) { w.since[1] = time.Now() })
}

// The lease lapses while a page is read: its rows are the next holder's.
func TestPageThatIsReadWhileTheLeaseLapses(t *testing.T) {
	duringASlowPage(t, 5*time.Second, time.Minute, func(w *world) { w.closed = true })
}

// duringASlowPage changes the world while a page with a due row is read, for ten seconds, or after it: the row is not tried again
// for a span of time.
func duringASlowPage(t *testing.T, after, span time.Duration, change func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Hour
		w := newWorld(1)
		w.since[1] = time.Now().Add(-every)
		w.slow = 10 * time.Second
		begin(t, w, every, &memory{w: w})
		time.Sleep(after)
		before := w.tried(1)
		w.set(func() { change(w) })
		time.Sleep(span)
		if n := w.tried(1) - before; n > 0 {
			t.Errorf("tried %d times in %v", n, span)
		}
	})
}

// A database that does not answer is retried at growing intervals, and status says so.
func TestTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.since[1] = time.Now().Add(-time.Hour)
		w.err = errors.New("gone away")
		r, _ := begin(t, w, time.Minute, &memory{w: w})
		time.Sleep(time.Minute)
		if s, _ := r.State(name); s.Error != "gone away" || counted(r.metrics.errors) < 3 || counted(r.metrics.errors) > 6 {
			t.Errorf("%+v, %v errors", s, counted(r.metrics.errors))
		}
		w.set(func() { w.err = nil })
		time.Sleep(3 * time.Minute)
		if s, _ := r.State(name); s.Error != "" || w.tried(1) == 0 || w.reserved() != 0 {
			t.Errorf("%+v, tried %d times", s, w.tried(1))
		}
		if _, ok := r.State(fmt.Sprint(name, "2")); ok {
			t.Error("a table that is left alone has a state")
		}
	})
}

// A table with very many rows delays those of another by one page, not by its own pass.
func TestTablesAreProcessedAlternately(t *testing.T) {
	for _, what := range []string{"FAILED", "SENT"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(2_000)
				w.since[firstOfLater] = time.Now()
				for n := range w.since {
					w.since[n], w.good[n], w.sent[n] = time.Now().Add(-time.Hour), true, what == "SENT"
				}
				rule := table.Redeliver{After: time.Minute, Until: "consumed", Max: 1}
				cfg := Config{Failed: map[string]time.Duration{name: time.Minute, later: time.Minute}}
				if what == "SENT" {
					cfg = Config{Sent: map[string]table.Redeliver{name: rule, later: rule}}
				}
				run(t, w, cfg, &memory{w: w})
				time.Sleep(30 * time.Second)
				if first := w.tried(firstOfLater) + w.copied()[firstOfLater]; first != 1 {
					t.Errorf("the row of the second table was processed %d times in the first 30 seconds, want 1", first)
				}
				time.Sleep(10 * time.Minute)
				if n := w.rowsTried() + len(w.copied()); n != 2_001 {
					t.Errorf("%d rows were processed, want 2,001", n)
				}
			})
		})
	}
}
