package ack

import (
	"context"
	"time"
)

// takeAlong writes the tables whose rows came while the writer waited for its own. Statements right after each other cost less than half of
// what statements cost that each wake the process.
func (a *Acker) takeAlong(work context.Context, began time.Time) {
	for work.Err() == nil {
		q := a.queues.takeAlong(began)
		if q == nil {
			return
		}
		a.inTurn(work, q)
		a.queues.leave(q)
	}
}

// serve sees to it that a queue without a writer is written: by a writer that waits for its own batch and was there first, or by one of its
// own. Callers hold mu.
func (w *writeQueues) serve(q *writeQueue) {
	switch {
	case q.writing || q.items.len() == 0 || q.along && w.filling > 0 && q.items.len() < writeBatch:
	case w.filling > 0 && q.items.len() < writeBatch && q.failures == 0 && !q.locked:
		q.along = true
		w.along = append(w.along, q)
	default:
		w.startWriter(q)
	}
}

// takeAlong makes the caller, a writer, that of the oldest queue that has none and whose rows were there at a time; nil when there is none.
// The caller must leave the queue.
func (w *writeQueues) takeAlong(at time.Time) *writeQueue {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.along) > 0 {
		q := w.along[0]
		if q.along && q.since.After(at) {
			return nil
		}
		w.along[0], w.along = nil, w.along[1:]
		if q.along {
			q.writing, q.along = true, false
			return q
		}
	}
	w.along = nil
	return nil
}

// leave ends takeAlong: what has come meanwhile, or went back, is written by somebody else.
func (w *writeQueues) leave(q *writeQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.writing, q.batch = false, nil
	w.serve(q)
}

// leaveAlong gives each queue that was to be taken along a writer of its own: the one that would have taken it is held up.
func (w *writeQueues) leaveAlong() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.along {
		if q.along {
			w.startWriter(q)
		}
	}
	w.along = nil
}
