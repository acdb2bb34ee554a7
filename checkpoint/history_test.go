package checkpoint

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

var start = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// drawHistory is a history with bursts, pauses, moves and, at times, a clock that is set back.
func drawHistory(t *rapid.T) ([]historyItem, time.Time) {
	var items []historyItem
	now := start
	for range rapid.IntRange(0, 40).Draw(t, "bursts") {
		pause := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 7 * time.Minute, time.Hour, 50 * time.Hour, 500 * time.Hour, -time.Hour})
		now = now.Add(pause.Draw(t, "pause"))
		step := rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, 10 * time.Minute}).Draw(t, "step")
		moved := rapid.IntRange(0, 50).Draw(t, "moved")
		for i := range rapid.IntRange(1, 400).Draw(t, "length") {
			now = now.Add(step)
			items = append(items, historyItem{uint64(len(items) + 1), now, i == moved})
		}
	}
	return items, now.Add(rapid.SampledFrom([]time.Duration{0, time.Hour, 48 * time.Hour}).Draw(t, "later"))
}

func TestThinning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items, now := drawHistory(t)
		keep, drop := thin(slices.Clone(items), now)
		all := slices.Concat(keep, drop)
		slices.SortFunc(all, func(a, b historyItem) int { return int(a.number) - int(b.number) })
		if !slices.Equal(all, items) {
			t.Fatal("an entry is in neither or both of the parts")
		}
		if !slices.IsSortedFunc(keep, func(a, b historyItem) int { return int(a.number) - int(b.number) }) {
			t.Fatal("the order was lost")
		}
		newest := items[max(0, len(items)-historyNewest):]
		if len(keep) < len(newest) || !slices.Equal(keep[len(keep)-len(newest):], newest) {
			t.Fatal("one of the newest entries is gone")
		}
		if len(keep) > historyBound {
			t.Fatalf("%d entries were kept", len(keep))
		}
		if again, more := thin(slices.Clone(keep), now); len(more) > 0 || !slices.Equal(again, keep) {
			t.Fatalf("thinning again drops %d more", len(more))
		}
		checkCover(t, keep, drop, now)
	})
}

// checkCover: what was dropped has a neighbour that was kept and is as near as the age calls for; moves are kept.
func checkCover(t *rapid.T, keep, drop []historyItem, now time.Time) {
	for _, m := range drop {
		age := now.Sub(m.at)
		if age > historyHours || len(keep) >= historyBound {
			continue
		}
		if m.moved {
			t.Fatalf("a move that is %v old is gone", age)
		}
		step := time.Minute
		if age > historyMinutes {
			step = time.Hour
		}
		if !slices.ContainsFunc(keep, func(k historyItem) bool {
			return !k.moved && k.number < m.number && k.at.Truncate(step).Equal(m.at.Truncate(step))
		}) {
			t.Fatalf("nothing near the entry of %v ago was kept", age)
		}
	}
}

// Thinning every minute, as it happens, keeps the same minutes and hours as thinning once in the end.
func TestThinningStepByStep(t *testing.T) {
	var step, once []historyItem
	now := start
	for i := range 3 * 24 * 3600 / 20 {
		now = now.Add(20 * time.Second)
		m := historyItem{uint64(i + 1), now, false}
		step, once = append(step, m), append(once, m)
		if i%thinEvery == 0 {
			step, _ = thin(step, now)
		}
	}
	step, _ = thin(step, now)
	once, _ = thin(once, now)
	if !slices.Equal(step, once) {
		t.Fatalf("%d entries step by step, %d at once", len(step), len(once))
	}
	if n := len(step); n < historyNewest+1000 || n > historyNewest+1500 {
		t.Fatalf("%d entries after three days", n)
	}
}

// A script that moves the checkpoint all day does not fill the disk.
func TestThinningIsBounded(t *testing.T) {
	var items []historyItem
	for i := range 3 * historyBound {
		items = append(items, historyItem{uint64(i + 1), start.Add(time.Duration(i) * time.Second), true})
	}
	keep, drop := thin(slices.Clone(items), start.Add(24*time.Hour))
	if len(keep) != historyBound || len(drop) != 2*historyBound || !slices.Equal(keep, items[2*historyBound:]) {
		t.Fatalf("%d were kept, %d dropped", len(keep), len(drop))
	}
}

// The store appends at most one ordinary entry a second, thins the history while it runs and after a restart, and numbers
// continue.
func TestHistoryOfARunningStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := vfs.NewMem()
		s := openMem(t, files)
		offset := uint64(10)
		for range 2 { // two runs
			for range 3000 {
				time.Sleep(400 * time.Millisecond)
				offset++
				fatal(t, s.Commit(nil, nil, at(offset), 0))
			}
			time.Sleep(2 * time.Hour)
			fatal(t, s.Close())
			s = openMem(t, files)
		}
		history, err := s.History()
		fatal(t, err)
		if n := len(history); n < historyNewest || n > historyNewest+200 || s.Stats().HistoryEntries != n {
			t.Fatalf("%d entries, counted %d", n, s.Stats().HistoryEntries)
		}
		for i := range len(history) - 1 {
			a, b := history[i], history[i+1]
			if a.Number <= b.Number || a.At.Sub(b.At) < historyPeriod || a.Position.Compare(b.Position) <= 0 {
				t.Fatalf("%+v follows %+v", a, b)
			}
		}
		if history[0].Number != 2000 { // 1.2 s apart: every third of 6000
			t.Fatalf("the newest entry is number %d", history[0].Number)
		}
		fatal(t, s.Close())
	})
}

func TestMovesStayInTheHistory(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	a, b := server.ID{Flavor: "mysql", UUID: "a", ServerID: 1}, server.ID{Flavor: "mysql", UUID: "b", ServerID: 2}
	fatal(t, s.Reset(a, *at(100), 0, "first start"))
	fatal(t, s.Commit(nil, nil, at(200), 0))
	fatal(t, s.SetSource(a)) // no change, no entry
	fatal(t, s.SetSource(b))
	fatal(t, s.Reset(b, *at(50), 1, "operator: replay"))
	if err := s.Reset(b, *at(60), 2, ""); err == nil {
		t.Fatal("a move without a reason was taken")
	}
	want := []string{
		"b 50 operator: replay", "b 200 before: operator: replay", "b 200 source changed from a to b", "a 100 first start",
	}
	var got []string
	history, err := s.History()
	fatal(t, err)
	for _, e := range history {
		if e.Reason != "" {
			got = append(got, fmt.Sprintf("%s %d %s", e.Source.UUID, e.Position.Offset, e.Reason))
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("history %q, want %q", got, want)
	}
	fatal(t, s.Close())
	s = openMem(t, files)
	if p, _ := s.Checkpoint(); p != *at(50) {
		t.Fatalf("after the restart the checkpoint is %v", p)
	}
	if id, ok := s.Source(); !ok || id != b {
		t.Fatalf("after the restart the source is %v", id)
	}
	fatal(t, s.Close())
}
