package fallback

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// D01: the reader is five minutes behind and advances: the sweep leaves its rows to it.
func TestD01_NothingIsPublishedWhileTheReaderIsMerelySlow(t *testing.T) {
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

// The end of the log is read after the rows, so that they lie before it, and nothing is reserved before the reader is there.
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

// A reader that is down is waited for once and not for each page; when it moves it is trusted again.
func TestPatienceIsSpentOnceForAllPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for id := range 3 * maxBatch {
			w.insert(old(id + 1))
		}
		w.offered = 500
		b := start(t, w)
		time.Sleep(11 * time.Second)
		if n := len(b.got()); n != 3*maxBatch {
			t.Fatalf("%d rows after one patience", n)
		}
		if b.logs.FilterMessageSnippet("without it").Len() != 1 {
			t.Errorf("logged %v", b.logs.All())
		}
		w.alter(func() { w.offered, w.end = 600, 2000 })
		w.insert(old(9001))
		b.Trigger()
		time.Sleep(9 * time.Second)
		if n := len(b.got()); n != 3*maxBatch {
			t.Fatal("a reader that moved is not waited for")
		}
	})
}

// A reader that dies at the same transaction again and again goes back and forth: that is no progress.
func TestReadingTheSameStretchAgainIsNoProgress(t *testing.T) {
	var s stall
	now := time.Now()
	for i := range 20 {
		left := s.left(now, position(uint64(100-i%2)), false, 10*time.Second)
		if (left <= 0) != (i >= 10) {
			t.Fatalf("after %d s: %v left", i, left)
		}
		now = now.Add(time.Second)
	}
}

func TestBackPressureCountsAsAdvancing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		w.offered, w.pressure = 500, true
		b := start(t, w)
		time.Sleep(10 * time.Minute)
		want(t, "while the reader waits for room", b.got())
		w.alter(func() { w.pressure = false })
		time.Sleep(8 * time.Second)
		want(t, "within patience of the last back-pressure", b.got())
		time.Sleep(4 * time.Second)
		want(t, "after patience", b.got(), 1)
	})
}

func TestBreakerOpensWhileTheSweepWaitsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		w.offered, w.pressure = 500, true
		b := start(t, w)
		time.Sleep(5 * time.Second)
		w.alter(func() { w.open, w.pressure = true, false })
		time.Sleep(time.Minute)
		want(t, "breaker open, patience over", b.got())
		before := look(w, &b.pages)
		time.Sleep(time.Minute)
		if look(w, &b.pages) != before {
			t.Error("queries while the breaker is open")
		}
		w.alter(func() { w.open, w.offered = false, 1000 })
		time.Sleep(2 * time.Second)
		want(t, "after the outage", b.got(), 1)
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

// D12: the selection shows rows as they were; the claim on the primary decides.
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
