package ack

import (
	"slices"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// queue has acknowledged rows for the journal loop. Like every queue of this package it is bounded by the pipeline, which offers
// no more messages while too many completions are pending.
type queue struct {
	signal chan struct{} // holds a token when unprocessed rows wait
	many   chan struct{} // holds a token when enough rows wait for a commit

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

// take removes everything, oldest first. The caller owns the slice and may return it to arrays.
func (q *queue) take() []outbox.Completion {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.items
	q.items = nil
	lower(q.signal) // both signals were for these rows
	lower(q.many)
	return all
}

// arrays has the arrays of emptied lists, for reuse.
var arrays arrayPool

type arrayPool struct{ pool sync.Pool }

// take returns an empty list.
func (a *arrayPool) take() []outbox.Completion {
	if list, ok := a.pool.Get().(*[]outbox.Completion); ok {
		return *list
	}
	return nil
}

// giveBack clears a list, so that no message outlives its completion, and keeps its array.
func (a *arrayPool) giveBack(list []outbox.Completion) {
	if cap(list) == 0 {
		return
	}
	clear(list)
	list = list[:0]
	a.pool.Put(&list)
}

// raise adds a token unless there is one.
func raise(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// lower takes the token, if there is one.
func lower[T any](signal <-chan T) {
	select {
	case <-signal:
	default:
	}
}

// fifo is a list with additions at its end and removals at its head. It is a ring: a table with thousands of waiting rows needs
// little extra room. Removed rows are cleared, so that no message outlives its completion.
type fifo struct {
	rows []outbox.Completion // its whole length is capacity
	head int                 // index of the oldest
	n    int                 // number of rows from there, wrapping at the end of the array
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

// grow moves the rows to an array with room for n or more. The old one is left to the garbage collector: a pool would keep every
// size of a growing backlog.
func (f *fifo) grow(n int) {
	rows := arrays.take()
	if cap(rows) < n {
		rows = make([]outbox.Completion, 0, n+n/4)
	}
	oldest, rest := f.parts(f.n)
	rows = append(append(rows, oldest...), rest...)
	f.rows, f.head = rows[:cap(rows)], 0
}

// parts returns the n oldest rows in order.
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
		arrays.giveBack(f.rows[:0]) // an idle table does not keep the array of a busy one
		f.rows, f.head = nil, 0
	}
	return into
}

// putBack returns rows to the head.
func (f *fifo) putBack(list []outbox.Completion) {
	oldest, rest := f.parts(f.n)
	f.rows, f.head = slices.Concat(list, oldest, rest), 0
	f.n = len(f.rows)
}
