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

// fifo is a list with additions at its end and removals at its head. Removed rows are cleared, so that no message outlives its completion. Rows
// move to the front of the array when it is full and they are less than half of it, so that a queue that never becomes empty needs little extra
// room.
type fifo struct {
	rows []outbox.Completion
	head int // index of the oldest
}

func (f *fifo) len() int { return len(f.rows) - f.head }

// waiting returns the rows, oldest first. They stay in the list.
func (f *fifo) waiting() []outbox.Completion { return f.rows[f.head:] }

func (f *fifo) add(list []outbox.Completion) {
	if f.rows == nil {
		f.rows = arrays.take()
	}
	if len(f.rows)+len(list) > cap(f.rows) && f.head > f.len() {
		n := copy(f.rows, f.waiting())
		clear(f.rows[n:])
		f.rows, f.head = f.rows[:n], 0
	}
	f.rows = append(f.rows, list...)
}

// take moves up to n rows from the head to the end of into.
func (f *fifo) take(n int, into []outbox.Completion) []outbox.Completion {
	oldest := f.waiting()[:min(n, f.len())]
	into = append(into, oldest...)
	clear(oldest)
	f.head += len(oldest)
	if f.len() == 0 {
		arrays.giveBack(f.rows[:0]) // an idle table does not keep the array of a busy one
		*f = fifo{}
	}
	return into
}

// putBack returns rows to the head.
func (f *fifo) putBack(list []outbox.Completion) {
	*f = fifo{rows: slices.Concat(list, f.waiting())}
}
