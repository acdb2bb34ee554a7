package ack

import (
	"slices"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// queue holds acknowledged rows for the journal loop. Like every queue of this package it is bounded by the pipeline, which
// offers no more messages while too many completions are pending.
type queue struct {
	signal chan struct{} // holds one token when something was added since the last receive

	mu    sync.Mutex
	items []outbox.Completion
}

func newQueue() *queue { return &queue{signal: make(chan struct{}, 1)} }

func (q *queue) add(list []outbox.Completion) {
	q.mu.Lock()
	q.items = append(q.items, list...)
	q.mu.Unlock()
	raise(q.signal)
}

// take removes everything, oldest first. The slice is the caller's.
func (q *queue) take() []outbox.Completion {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.items
	q.items = nil
	return all
}

// raise leaves a token unless one is there.
func raise(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// takeFirst splits up to n items off the head. The batch is the caller's; the rest stays in the old array, cleared behind
// its end, so that no message outlives its completion.
func takeFirst(items []outbox.Completion, n int) (batch, rest []outbox.Completion) {
	if len(items) <= n {
		return items, nil
	}
	return slices.Clone(items[:n]), slices.Delete(items, 0, n)
}
