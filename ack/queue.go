package ack

import (
	"slices"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// queue holds acknowledged rows for the journal loop. Like every queue of this package it is bounded by the pipeline, which
// offers no more messages while too many completions are pending.
type queue struct {
	signal chan struct{} // holds a token when something waits that nobody has seen
	many   chan struct{} // holds a token when so many rows wait that they do not wait for more

	mu    sync.Mutex
	items []outbox.Completion
}

func newQueue() *queue { return &queue{signal: make(chan struct{}, 1), many: make(chan struct{}, 1)} }

func (q *queue) add(list []outbox.Completion) {
	q.mu.Lock()
	if q.items == nil {
		q.items = arrays.take()
	}
	q.items = append(q.items, list...)
	if len(q.items) >= manyRows {
		raise(q.many)
	}
	raise(q.signal)
	q.mu.Unlock()
}

// take removes everything, oldest first. The slice is the caller's, who may give it back to arrays.
func (q *queue) take() []outbox.Completion {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.items
	q.items = nil
	lower(q.signal) // both were about these
	lower(q.many)
	return all
}

// arrays are those of lists whose rows are somewhere else now: the next ones are written to them. What nobody needs the collector takes.
var arrays arrayPool

type arrayPool struct{ pool sync.Pool }

// take returns an empty list.
func (a *arrayPool) take() []outbox.Completion {
	if list, ok := a.pool.Get().(*[]outbox.Completion); ok {
		return *list
	}
	return nil
}

// giveBack forgets the rows of a list, so that no message outlives its completion, and keeps its array.
func (a *arrayPool) giveBack(list []outbox.Completion) {
	if cap(list) == 0 {
		return
	}
	clear(list)
	list = list[:0]
	a.pool.Put(&list)
}

// raise leaves a token unless one is there.
func raise(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// lower takes the token, if one is there.
func lower[T any](signal <-chan T) {
	select {
	case <-signal:
	default:
	}
}

// fifo is a list that is added to at its end and taken from its head. It is a ring: a table whose rows wait in their thousands has
// little more room than they need. What was taken is cleared, so that no message outlives its completion.
type fifo struct {
	rows []outbox.Completion // all of it is room
	head int                 // the place of the oldest
	n    int                 // rows from there on, over the end of the array to its begin
}

func (f *fifo) len() int { return f.n }

func (f *fifo) add(list []outbox.Completion) {
	if f.n+len(list) > len(f.rows) {
		f.grow(f.n + len(list))
	}
	free := f.head + f.n
	if free >= len(f.rows) {
		free -= len(f.rows)
	}
	placed := copy(f.rows[free:], list)
	copy(f.rows, list[placed:])
	f.n += len(list)
}

// grow moves the rows to an array with room for n or more. The old one is the collector's: a pool would keep every size that a growing
// backlog has had.
func (f *fifo) grow(n int) {
	rows := arrays.take()
	if cap(rows) < n {
		rows = make([]outbox.Completion, 0, n+n/4)
	}
	oldest, rest := f.parts(f.n)
	rows = append(append(rows, oldest...), rest...)
	f.rows, f.head = rows[:cap(rows)], 0
}

// parts are the n oldest rows in their order.
func (f *fifo) parts(n int) (oldest, rest []outbox.Completion) {
	if end := f.head + n; end > len(f.rows) {
		return f.rows[f.head:], f.rows[:end-len(f.rows)]
	}
	return f.rows[f.head : f.head+n], nil
}

// take moves up to n rows from the head to the end of into.
func (f *fifo) take(n int, into []outbox.Completion) []outbox.Completion {
	n = min(n, f.n)
	oldest, rest := f.parts(n)
	into = append(append(into, oldest...), rest...)
	clear(oldest)
	clear(rest)
	f.n -= n
	if f.head += n; f.head >= len(f.rows) {
		f.head -= len(f.rows)
	}
	if f.n == 0 {
		arrays.giveBack(f.rows[:0]) // an idle table keeps no array of a busy one
		f.rows, f.head = nil, 0
	}
	return into
}

// putBack makes rows the first again.
func (f *fifo) putBack(list []outbox.Completion) {
	oldest, rest := f.parts(f.n)
	f.rows, f.head = slices.Concat(list, oldest, rest), 0
	f.n = len(f.rows)
}
