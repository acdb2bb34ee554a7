package fallback

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Tables are not all looked at at once: each look has a connection.
func TestFewTablesAreLookedAtAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var at, most, all atomic.Int32
		w.onLook = func() error {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			all.Add(1)
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		var tables []string
		for n := range 64 {
			tables = append(tables, fmt.Sprint(idle, n))
		}
		start(t, w, tables...)
		time.Sleep(2 * time.Second)
		if most.Load() != maxLooks || all.Load() < 64 {
			t.Errorf("%d looks, %d at a time", all.Load(), most.Load())
		}
	})
}

// Timers are full, a row is announced during a look, and there is no room for all: the look that leaves out due rows which wait begins behind the
// last row that was kept, not behind the first that was dropped.
func TestARowDroppedForAnAnnouncedOneIsLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, began := newTimers(2, time.Hour), time.Now()
		row := func(id string, due time.Duration) outbox.Candidate {
			return outbox.Candidate{Identity: outbox.Identity{Table: shop, ID: id, MessageID: "m" + id}, DueInMilli: due.Milliseconds()}
		}
		if _, look, _ := list.take(began, 500); !look {
			t.Fatal("no look at the start")
		}
		list.leftAlone()
		list.add(row("3", 0).Identity, began.Add(3*time.Second), nil)
		list.looked(began, []outbox.Candidate{row("1", time.Second), row("2", 1500*time.Millisecond)}, &outbox.LogEnd{}, time.Hour)
		time.Sleep(1510 * time.Millisecond)
		due, look, _ := list.take(time.Now(), 500)
		if len(due) != 1 || due[0].row.ID != "1" || !look {
			t.Fatalf("%v are due (look: %t), want the first row and a look", due, look)
		}
		if from, since := list.from(), time.Since(began.Add(1500*time.Millisecond)); from <= since {
			t.Errorf("the look leaves out what is due for %v, and the dropped row is due for %v", from, since)
		}
		if list.from() == overdue {
			t.Error("the look returns what it has returned before")
		}
	})
}
