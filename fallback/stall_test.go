package fallback

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// More rows become due at the same time than timers can publish in a second: they request a sweep for the others.
func TestMoreRowsThanTimersManage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(waiting(1, 5001, 5*time.Second, 0)...)
		w.slow(100 * time.Millisecond)
		b := startWith(t, w, Config{Timers: 1000})
		time.Sleep(15 * time.Second)
		if n, timers := len(b.got()), len(look(w, &b.late)); n != 5000 || timers == 0 || timers > 2500 {
			t.Errorf("%d rows were published, %d by timers", n, timers)
		}
	})
}

// Statements that take two seconds, or that fail, delay rows by about that time, and not until the end of a sweep that works off a
// backlog: the rows that became overdue meanwhile stay with the timers.
func TestAStallPutsNoRowBehindTheBacklog(t *testing.T) {
	const backlog, rows, stall = 60_000, 3000, 2 * time.Second
	for name, stalls := range map[string]func() error{
		"statements take long": func() error { time.Sleep(stall / 2); return nil },
		"two statements fail":  func() error { return errGone }, // the second pause is 2 s
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(append(waiting(1, backlog+1, -time.Minute, 0), waiting(backlog+1, backlog+rows+1, 5*time.Second, 3*time.Second)...)...)
				w.slow(50 * time.Millisecond)
				slow, calls := w.onStates, 0 // of the timers alone
				w.onStates = func() error {
					if calls++; calls == 3 || calls == 4 {
						return stalls()
					}
					return slow()
				}
				b := start(t, w)
				time.Sleep(8*time.Second + stall + time.Second)
				if n := len(b.got()); n >= backlog+rows {
					t.Fatal("the sweep has ended too early")
				}
				late := slices.Sorted(slices.Values(look(w, &w.late)))
				if len(late) != rows || late[rows-1] > 2*stall {
					t.Errorf("timers published %d of %d rows, the last one %v late", len(late), rows, late[len(late)-1])
				}
			})
		})
	}
}
