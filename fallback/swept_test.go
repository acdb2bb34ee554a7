package fallback

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A sweep reports to the flow how many rows were never tried and have no due time: only those may be rows that the log never had.
func TestSweepTellsWhatItTriedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		row  row
		want int
	}{
		"untried":            {row{}, 1},
		"with a due time":    {row{due: time.Unix(1, 0)}, 0},
		"tried":              {row{retries: 1}, 0},
		"under an old claim": {row{status: outbox.Sending}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, newWorld())
				r := c.row
				r.id, r.created = 1, time.Now().Add(-time.Hour)
				b.insert(&r)
				time.Sleep(31 * time.Second)
				want(t, "a regular sweep", b.got(), 1)
				last := look(b.world, &b.sweeps)
				s := last[len(last)-1]
				if s.Untried != c.want || s.AnyAge || s.Within != 2*time.Minute || time.Since(s.Began) > time.Second {
					t.Errorf("reported %+v, want %d untried rows", s, c.want)
				}
			})
		})
	}
}

// An incomplete sweep reports nothing, and one over rows of any age says so.
func TestOnlyCompleteSweepsTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		w.onRead = func() error { return errGone }
		b := start(t, w)
		time.Sleep(time.Minute)
		if swept := look(w, &b.sweeps); len(swept) > 0 {
			t.Errorf("swept %+v", swept)
		}
		set(w, &w.onRead, nil)
		b.Trigger()
		time.Sleep(time.Minute)
		if swept := look(w, &b.sweeps); len(swept) == 0 || !swept[0].AnyAge {
			t.Errorf("swept %+v", swept)
		}
	})
}

// P1: a claimed row that cannot become a message is passed on with its entry, and is not released.
func TestRejectedRowsAreHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1), old(2))
		w.rows[1].topic = "none"
		b := start(t, w)
		want(t, "the other one", b.got(), 2)
		if s := w.rows[1].status; s != outbox.Failed {
			t.Errorf("the row that cannot become a message is %s", s)
		}
	})
}
