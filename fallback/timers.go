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
	// overdue divides the work: a row whose time came longer ago is the sweep's, any other the timers'. So rows that are due now do
	// not wait in a page of the sweep, and a backlog of due rows, after an outage, stays within the sweep's share.
	overdue = time.Second

	timerGap  = 20 * time.Millisecond // least time between two passes: rows that become due meanwhile go together
	maxTimers = 10_000                // rows in all timers, unless there are many tables
	minTimers = 500                   // of a table
)

// timers are the rows of one table that become due next: who they are, when to look at them, and where in the log they lie at the latest.
// Rows come from a look at the table (looked) and from whoever leaves a row to them (add). There is room for a limited number; the rows
// that become due first stay, and the others are found by the look that follows when half of the room is free again. Any goroutine may
// call.
type timers struct {
	limit int
	ahead time.Duration // how far a look sees: rows that become due later than that are of no interest yet
	wake  chan struct{} // holds one token when there may be something to do earlier

	mu     sync.Mutex
	rows   timerHeap
	known  time.Time // of the rows that stood in the table at the last look, those that become due before this were entered; zero before the first
	full   bool      // others were left out
	alone  bool      // since the last look rows that were due were left alone: their keys or topics wait
	onward bool      // the look that is under way leaves out the rows that the last one has shown
	behind time.Time // where such a look begins: the due time of the last row that was shown
	looks  plan
	pass   time.Time // begin of the last pass
	hold   time.Time // nothing before: the database did not answer
	away   time.Time // no pass before, unless something is triggered: the broker is away, or the relay is paused
}

func newTimers(limit int, ahead time.Duration) *timers {
	return &timers{limit: limit, ahead: ahead, wake: make(chan struct{}, 1), rows: newHeap()}
}

// add enters a row, or sets its time anew. The row lies before end in the log; nil: the log has shown it.
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

// enter reports whether the row is now the first. Callers hold mu.
func (t *timers) enter(one timer) (first bool) {
	if i, found := t.rows.place[one.row]; found {
		t.rows.list[i].at = one.at
		heap.Fix(&t.rows, i)
		return t.rows.list[0].row == one.row
	}
	if t.full && one.at.After(t.known) {
		return false // the look that comes before that sees it
	}
	heap.Push(&t.rows, one)
	if len(t.rows.list) > t.limit {
		t.known, t.full = t.rows.cut(t.limit*3/4), true // not to half, or it would be time for a look at once
		t.looks.trigger(time.Now())                     // the log may have shown them before the table does
	}
	return t.rows.list[0].row == one.row
}

// trigger lets the table be looked at soon, and once more a second later, as a sweep is. anew forgets the rows: their place in the log
// may be one of another server.
func (t *timers) trigger(now time.Time, anew bool) {
	t.mu.Lock()
	if anew {
		t.rows, t.known, t.full = newHeap(), time.Time{}, false
	}
	t.looks.trigger(now)
	t.away = time.Time{}
	t.mu.Unlock()
	t.kick()
}

// wait is how long until there is something to do; 0 or less: now.
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
	return max(wait, t.pass.Add(timerGap).Sub(now), t.hold.Sub(now), t.away.Sub(now))
}

// lacking reports whether rows were left out for which there is room now. Callers hold mu.
func (t *timers) lacking() bool { return t.full && len(t.rows.list) <= t.limit/2 }

// take begins a pass. It returns the rows that are due, at most n, and whether it is time to look at the table. Rows that are overdue are
// forgotten, because they are the sweep's now; late reports that there were some.
func (t *timers) take(now time.Time, n int) (due []timer, look, late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass = now
	for len(t.rows.list) > 0 && len(due) < n && !t.rows.list[0].at.After(now) {
		first := heap.Pop(&t.rows).(timer)
		if now.Sub(first.at) > overdue {
			late = true
			continue
		}
		due = append(due, first)
	}
	if look = t.lacking() || t.looks.wait(now) <= 0; look {
		late = late || !t.known.IsZero() && now.Sub(t.known) > overdue // others may have become due unseen
		// Rows that wait for something else filled the last look and would fill this one: those that it has shown are the sweep's.
		t.onward = t.full && t.alone
		t.behind = t.known
		late = late || t.onward
		t.looks.begin(now)
		t.known, t.full, t.alone = time.Time{}, false, false
	}
	return due, look, late
}

// from is how long ago the rows became due, at the most, that the look which is under way shows.
func (t *timers) from() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.onward {
		return min(max(0, time.Since(t.behind)), overdue)
	}
	return overdue
}

// leftAlone notes that rows were due and were left alone.
func (t *timers) leftAlone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alone = true
}

// again enters a row that is due and waits for the log; it reports false when it has waited so long that it is the sweep's.
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

// looked ends a look that began at a time: it showed rows in the order of their due times, and the log ends at end since. The next look
// is an interval later.
func (t *timers) looked(began time.Time, rows []outbox.Candidate, end *outbox.LogEnd, interval time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, full := began.Add(t.ahead), len(rows) >= t.limit
	if full {
		known = dueTime(began, &rows[len(rows)-1])
	}
	if !t.full || known.Before(t.known) { // else somebody has filled the room meanwhile
		t.known, t.full = known, full || t.full
	}
	for i := range rows {
		t.enter(timer{row: rows[i].Identity, at: dueTime(began, &rows[i]), end: end})
	}
	t.looks.done(time.Now(), interval)
	t.hold = time.Time{}
}

// dueTime is the due time of a row by our clock, as a query shows it that was asked at a time.
func dueTime(asked time.Time, c *outbox.Candidate) time.Time {
	return asked.Add(time.Duration(c.DueInMilli) * time.Millisecond)
}

// failed keeps a pause after a statement that failed; a look that was under way is made again.
func (t *timers) failed(until time.Time, look bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold = until
	if look {
		t.looks.next = until
	}
}

// swept tells whether a sweep of the table was complete. If not, the sweep alone tries whether the database answers, and looks wait
// for it; if so, nothing waits any more.
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

// notNow keeps rows where they are until something is triggered.
func (t *timers) notNow(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = until
}

// len counts the rows.
func (t *timers) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows.list)
}

// timer is one row and when to look at it.
type timer struct {
	row   outbox.Identity
	at    time.Time
	end   *outbox.LogEnd
	waits int // for the log, when it was due
}

func newHeap() timerHeap { return timerHeap{place: map[outbox.Identity]int{}} }

// timerHeap has the row to be looked at first at its top. It implements heap.Interface.
type timerHeap struct {
	list  []timer
	place map[outbox.Identity]int // in list
}

func (h *timerHeap) Len() int           { return len(h.list) }
func (h *timerHeap) Less(i, j int) bool { return h.list[i].at.Before(h.list[j].at) }

func (h *timerHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.place[h.list[i].row], h.place[h.list[j].row] = i, j
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	one := x.(timer)
	h.place[one.row] = len(h.list)
	h.list = append(h.list, one)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	last := len(h.list) - 1
	one := h.list[last]
	h.list[last] = timer{}
	h.list = h.list[:last]
	delete(h.place, one.row)
	return one
}

// cut keeps the first n rows and returns the time of the first that it drops.
func (h *timerHeap) cut(n int) time.Time {
	slices.SortFunc(h.list, func(a, b timer) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.row.ID, b.row.ID)) }) // a sorted list is a heap
	at := h.list[n].at
	for _, dropped := range h.list[n:] {
		delete(h.place, dropped.row)
	}
	clear(h.list[n:])
	h.list = h.list[:n]
	for i := range h.list {
		h.place[h.list[i].row] = i
	}
	return at
}
