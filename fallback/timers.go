package fallback

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const (
	// overdue divides the work: the sweep publishes rows that are due for longer, timers the others. So rows that are due now do
	// not wait in a page of the sweep, and a backlog of due rows, after an outage, stays within the sweep's share.
	overdue = time.Second

	// stalled is how long rows that became overdue in the timers stay there: a statement or a machine that stalled delays them by that
	// time alone, and not by a sweep that works off a backlog.
	stalled = 10 * time.Second

	timerGap  = 20 * time.Millisecond // minimum time between two passes: rows that become due meanwhile are published together
	maxTimers = 10_000                // rows in all timers, unless there are many tables
	minTimers = 500                   // of a table
)

// timers are the rows of one table that become due next, with the time to look at them and an upper bound of their position in
// the log. Rows come from a look at the table (looked) and from parts that announce a row (add). The number is limited; the rows
// that become due first stay, and the look that follows when half of the room is free finds the others. Any goroutine may call.
type timers struct {
	limit int
	ahead time.Duration // how far a look reads: rows that become due later are left out
	wake  chan struct{} // holds a token when there may be something to do earlier

	mu     sync.Mutex
	rows   timerHeap
	known  time.Time // rows of the last look that become due before this were added; zero before the first
	full   bool      // others were left out
	tight  bool      // others were left out when the last pass began
	left   time.Time // when a row was left out last that no look had returned
	alone  bool      // since the last look due rows were left alone: their keys or topics wait, or they are owned
	onward bool      // the running look leaves out the rows that the last one returned
	last   time.Time // the due time of the last row that stayed when others were left out
	behind time.Time // where such a look begins: that time
	looks  plan
	pauses
}

// pauses say when a pass may begin.
type pauses struct {
	pass time.Time // start of the last pass
	hold time.Time // nothing before: the database did not answer
	away time.Time // no pass before, unless something is triggered: the broker is away, or the relay is paused
}

// wait is the time until a pass may begin.
func (p *pauses) wait(now time.Time) time.Duration {
	return max(p.pass.Add(timerGap).Sub(now), p.hold.Sub(now), p.away.Sub(now))
}

func newTimers(limit int, ahead time.Duration) *timers {
	return &timers{limit: limit, ahead: ahead, wake: make(chan struct{}, 1), rows: newHeap()}
}

// add adds a row, or sets its time again. The row is before end in the log; nil: the log has delivered it.
func (t *timers) add(row outbox.Identity, at time.Time, end *outbox.LogEnd) {
	t.mu.Lock()
	first := t.enter(timer{row: row, at: at, end: end})
	t.mu.Unlock()
	if first {
		t.kick()
	}
}

func (t *timers) kick() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// enter adds a row and reports whether it is now the first. Callers hold mu.
func (t *timers) enter(one timer) (first bool) {
	if i, found := t.rows.index[one.row]; found {
		t.rows.list[i].at = one.at
		heap.Fix(&t.rows, i)
		return t.rows.list[0].row == one.row
	}
	if t.full && one.at.After(t.known) {
		t.left = time.Now() // an earlier look finds it
		return false
	}
	heap.Push(&t.rows, one)
	if len(t.rows.list) > t.limit {
		t.last, t.known = t.rows.cut(t.limit * 3 / 4) // not to half, or a look would follow at once
		t.full = true
		t.looks.trigger(time.Now()) // the log may have them before the table shows them
	}
	return t.rows.list[0].row == one.row
}

// trigger lets the table be looked at soon, and again a second later, like a sweep. reset drops the rows: their position in the
// log may be one of another server.
func (t *timers) trigger(now time.Time, reset bool) {
	t.mu.Lock()
	if reset {
		t.rows, t.known, t.full = newHeap(), time.Time{}, false
	}
	t.looks.trigger(now)
	t.away = time.Time{}
	t.mu.Unlock()
	t.kick()
}

// wait returns the time until there is something to do; 0 or less: now.
func (t *timers) wait(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := t.looks.wait(now)
	if t.lacking() {
		wait = 0
	}
	if len(t.rows.list) > 0 {
		wait = min(wait, t.rows.list[0].at.Sub(now))
	}
	return max(wait, t.pauses.wait(now))
}

// lacking reports whether rows were left out for which there is room now. Callers hold mu.
func (t *timers) lacking() bool { return t.full && len(t.rows.list) <= t.limit/2 }

// take begins a pass. It returns the rows that are due, at most n, and whether it is time to look at the table. Overdue rows come after the
// others; late reports that there were some, because the sweep publishes those that are not in the timers.
func (t *timers) take(now time.Time, n int) (due []timer, look, late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass, t.tight = now, t.full
	var behind []timer
	for len(t.rows.list) > 0 && len(due) < n && !t.rows.list[0].at.After(now) {
		first := heap.Pop(&t.rows).(timer)
		age := now.Sub(first.at)
		late = late || age > overdue
		switch {
		case age <= overdue:
			due = append(due, first)
		case age <= stalled:
			behind = append(behind, first)
		}
	}
	room := min(len(behind), n-len(due))
	due = append(due, behind[:room]...)
	for _, one := range behind[room:] {
		heap.Push(&t.rows, one)
	}
	lacking := t.lacking()
	if look = lacking || t.looks.wait(now) <= 0; look {
		late = late || !t.known.IsZero() && now.Sub(t.known) > overdue // others may have become due unnoticed
		// Rows that wait for something else filled the last look and would fill this one: the sweep publishes those that it
		// returned.
		t.onward = t.full && t.alone
		t.behind = t.last
		late = late || t.onward
		if lacking && now.Sub(t.left) < triggerGap { // the log may have shown it before the table does: look once more a second later
			t.looks.trigger(now)
		}
		t.looks.begin(now)
		t.known, t.full, t.alone = time.Time{}, false, false
	}
	return due, look, late
}

// from returns the maximum age of the due times in the running look.
func (t *timers) from() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.onward {
		return min(max(0, time.Since(t.behind)), overdue)
	}
	return overdue
}

// leftAlone records that due rows were left alone.
func (t *timers) leftAlone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alone = true
}

// yield reports whether rows that become due later need the room of due rows in flight, which it then records as left alone.
func (t *timers) yield() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alone = t.alone || t.tight
	return t.tight
}

// again adds a due row that waits for the log or for its owner; it returns false when it has waited long enough for the sweep to publish it.
func (t *timers) again(one timer, now time.Time) bool {
	if one.waits++; time.Duration(one.waits)*timerGap > overdue {
		return false
	}
	one.at = now.Add(timerGap)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enter(one)
	return true
}

// looked ends a look that began at a time: it returned rows in the order of their due times, and end is the end of the log after
// it. The next look is an interval later.
func (t *timers) looked(began time.Time, rows []outbox.Candidate, end *outbox.LogEnd, interval time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, full := began.Add(t.ahead), len(rows) >= t.limit
	if full {
		known = dueTime(began, &rows[len(rows)-1])
	}
	if !t.full || known.Before(t.known) { // else rows added meanwhile have filled the room
		t.known, t.last, t.full = known, known, full || t.full
	}
	for i := range rows {
		t.enter(timer{row: rows[i].Identity, at: dueTime(began, &rows[i]), end: end})
	}
	t.looks.done(time.Now(), interval)
	t.hold = time.Time{}
}

// dueTime returns the due time of a row by our clock, from a query at the time asked.
func dueTime(asked time.Time, c *outbox.Candidate) time.Time {
	return asked.Add(time.Duration(c.DueInMilli) * time.Millisecond)
}

// failed pauses after a failed statement; a running look is repeated.
func (t *timers) failed(until time.Time, look bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold = until
	if look {
		t.looks.next = until
	}
}

// swept records whether a sweep of the table was complete. If not, only the sweep tests whether the database answers, and looks
// wait for it; if so, nothing waits any more.
func (t *timers) swept(ok bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok {
		t.looks.hold = now.Add(t.ahead)
		return
	}
	t.hold, t.looks.hold = time.Time{}, time.Time{}
	t.kick()
}

// notNow stops passes until a trigger.
func (t *timers) notNow(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = until
}

// len returns the number of rows.
func (t *timers) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows.list)
}

// timer is one row and the time to look at it.
type timer struct {
	row   outbox.Identity
	at    time.Time
	end   *outbox.LogEnd
	waits int // number of waits for the log
}

func newHeap() timerHeap { return timerHeap{index: map[outbox.Identity]int{}} }

// timerHeap has the row to look at first at its top. It implements heap.Interface.
type timerHeap struct {
	list  []timer
	index map[outbox.Identity]int // in list
}

func (h *timerHeap) Len() int           { return len(h.list) }
func (h *timerHeap) Less(i, j int) bool { return h.list[i].at.Before(h.list[j].at) }

func (h *timerHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.index[h.list[i].row], h.index[h.list[j].row] = i, j
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	one := x.(timer)
	h.index[one.row] = len(h.list)
	h.list = append(h.list, one)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	last := len(h.list) - 1
	one := h.list[last]
	h.list[last] = timer{}
	h.list = h.list[:last]
	delete(h.index, one.row)
	return one
}

// cut keeps the first n rows and returns the times of the last kept one and of the first dropped one.
func (h *timerHeap) cut(n int) (kept, dropped time.Time) {
	slices.SortFunc(h.list, func(a, b timer) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.row.ID, b.row.ID)) }) // a sorted list is a heap
	kept, dropped = h.list[max(0, n-1)].at, h.list[n].at
	for _, one := range h.list[n:] {
		delete(h.index, one.row)
	}
	clear(h.list[n:])
	h.list = h.list[:n]
	for i := range h.list {
		h.index[h.list[i].row] = i
	}
	return kept, dropped
}
