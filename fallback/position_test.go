package fallback

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// The reader is five minutes behind and advances: the sweep waits for it.
func TestASlowReaderIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		w.offered = 0
		b := start(t, w)
		for range 300 {
			time.Sleep(time.Second)
			w.alter(func() { w.offered++ })
		}
		want(t, "while the reader is behind", b.got())
		w.alter(func() { w.offered = 1000 })
		want(t, "when it has passed the row without taking it", b.got(), 1)
		if w.window != 0 {
			t.Error("the window was raised")
		}
	})
}

func TestD01_RowsOfTheFastPathAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1), &row{id: 2, topic: "owned", created: time.Now().Add(-time.Hour)})
		w.owned[w.rows[2].identity()] = true
		b := start(t, w)
		want(t, "one of two is owned", b.got(), 1)
		if n := b.count(t, "canal_outbox_sweep_rows_total", rowOwned); n != 1 {
			t.Errorf("owned: %v", n)
		}
	})
}

// The end of the log is read after the rows, so that they are before it, and nothing is reserved before the reader gets there.
func TestEndIsReadAfterTheSelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld(old(1)))
		b.got()
		if order := []string{"due", "end", "reserve", "claim", "publish"}; !slices.Equal(b.calls, order) {
			t.Fatalf("got %v, want %v", b.calls, order)
		}
	})
}

func TestReaderDownRaisesTheWindowBeforePublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		w.offered = 500
		b := start(t, w)
		time.Sleep(9 * time.Second)
		want(t, "within patience", b.got())
		time.Sleep(2 * time.Second)
		want(t, "after patience", b.got(), 1)
		if order := []string{"due", "end", "window", "reserve", "claim", "publish"}; !slices.Equal(b.calls, order) || w.window != 1000 {
			t.Fatalf("got %v, window %d", b.calls, w.window)
		}
	})
}

// A server with a shorter log takes over while the sweep waits for the end of the old one.
func TestSweepBeginsAgainWhenThePositionIsSetElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		w.offered = 500
		b := start(t, w)
		time.Sleep(time.Second)
		want(t, "while the reader is behind", b.got())
		w.alter(func() { w.generation, w.end, w.offered = 1, 100, 100 })
		want(t, "without a pause", b.got(), 1)
		if w.window != 0 {
			t.Errorf("the window was raised to %d", w.window)
		}
		if n := b.count(t, "canal_outbox_sweep_runs_total", runMoved); n != 1 {
			t.Errorf("moved: %v", n)
		}
	})
}

// The position is moved while the end of the log is queried: the answer may be that of the old server.
func TestEndThatComesAfterAMoveIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		w.onEnd = func() error {
			if look(w, &w.ends) == 0 {
				set(w, &w.generation, 1)
			}
			return nil
		}
		b := start(t, w)
		want(t, "of one row", b.got(), 1)
		if n := b.count(t, "canal_outbox_sweep_runs_total", runMoved); n != 1 {
			t.Errorf("moved: %v", n)
		}
	})
}

// The position is moved while a row waits for its due time: the sweep publishes the row, and soon.
func TestRowThatWaitsWhileThePositionIsSetElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&row{id: 1, topic: "orders", created: time.Now(), due: time.Now().Add(10 * time.Second)})
		b := start(t, w)
		time.Sleep(5 * time.Second)
		w.alter(func() { w.generation, w.end, w.offered = 1, 100, 100 })
		time.Sleep(10 * time.Second)
		want(t, "after its time", b.got(), 1)
		if w.window != 0 {
			t.Errorf("the window was raised to %d", w.window)
		}
	})
}

// D10: row 1 commits after row 2 was swept.
func TestD10_LowerIDThatCommitsLaterIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld(old(2)))
		want(t, "first sweep", b.got(), 2)
		b.insert(old(1))
		time.Sleep(31 * time.Second)
		want(t, "next sweep", b.got(), 2, 1)
	})
}

// D12: the selection may be stale; the claim on the primary decides.
func TestD12_StaleSelectionPublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1), old(2), old(3))
		w.rows[1].status = outbox.Sent
		w.rows[2].status = outbox.Held
		w.stale = func(r *row) row { seen := *r; seen.status = outbox.Pending; return seen }
		b := start(t, w)
		want(t, "of three rows shown as PENDING", b.got(), 3)
		if n := b.count(t, "canal_outbox_sweep_rows_total", rowGone); n != 2 {
			t.Errorf("gone: %v", n)
		}
	})
}
