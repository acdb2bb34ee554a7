package kafka

import (
	"strconv"
	"strings"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// results collects outcomes, one by one, on goroutines of the client library that must not block, and reports them in slices:
// each call of done has what came during the previous call.
type results struct {
	mu    sync.Mutex
	ready []*batch            // with outcomes to report
	live  map[*batch]struct{} // with messages that are not reported
	open  int                 // messages that are not reported

	wake    chan struct{} // gets a token when ready is not empty
	drained chan struct{} // gets a token when open reached zero
	stop    chan struct{} // closed: report what is ready and end
	stopped chan struct{} // closed when run has ended
}

func newResults() *results {
	return &results{
		live: map[*batch]struct{}{}, wake: make(chan struct{}, 1), drained: make(chan struct{}, 1),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// add counts a batch, before any of its outcomes can come.
func (r *results) add(b *batch) {
	r.mu.Lock()
	r.live[b] = struct{}{}
	r.open += b.left
	r.mu.Unlock()
}

// finish records the outcome of a delivery; the first one counts (after a Close that timed out a late one may come).
func (r *results) finish(d *delivery, o outbox.Outcome) {
	r.mu.Lock()
	wake := r.finishLocked(d, o)
	r.mu.Unlock()
	if wake {
		signal(r.wake)
	}
}

func (r *results) finishLocked(d *delivery, o outbox.Outcome) (wake bool) {
	if d.finished {
		return false
	}
	d.finished, d.outcome = true, o
	b := d.batch
	if len(b.ready) == 0 {
		r.ready = append(r.ready, b)
		wake = len(r.ready) == 1
	}
	b.ready = append(b.ready, d)
	return wake
}

// finishAll gives an outcome to everything that has none.
func (r *results) finishAll(outcome func(*delivery) outbox.Outcome) {
	r.mu.Lock()
	for b := range r.live {
		for i := range b.deliveries {
			if d := &b.deliveries[i]; !d.finished {
				r.finishLocked(d, outcome(d))
			}
		}
	}
	r.mu.Unlock()
	signal(r.wake)
}

// run reports results until it is stopped; after that nothing more is reported.
func (r *results) run() {
	defer close(r.stopped)
	for {
		select {
		case <-r.wake:
			r.handOver()
		case <-r.stop:
			r.handOver()
			return
		}
	}
}

func (r *results) handOver() {
	r.mu.Lock()
	batches := r.ready
	r.ready = nil
	lists := make([][]*delivery, len(batches))
	for i, b := range batches {
		lists[i] = b.ready
		b.ready = b.ready[len(b.ready):]
		if b.left -= len(lists[i]); b.left == 0 {
			delete(r.live, b)
		}
	}
	r.mu.Unlock()
	n := 0
	for i, b := range batches {
		b.done(resultsOf(lists[i]))
		n += len(lists[i])
	}
	r.mu.Lock()
	if r.open -= n; r.open == 0 {
		signal(r.drained)
	}
	r.mu.Unlock()
}

// left returns the number of messages that were sent here and not reported.
func (r *results) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// resultsOf returns the results of deliveries; their broker ids, partition@offset, share one piece of memory.
func resultsOf(list []*delivery) []sink.Result {
	out := make([]sink.Result, len(list))
	var ids strings.Builder
	ids.Grow(len(list) * 14)
	var number [48]byte
	for i, d := range list {
		out[i] = sink.Result{Message: d.message, Outcome: d.outcome}
		if d.outcome.Class != outbox.ClassNone || d.record.Offset < 0 { // no offset: a duplicate that the broker already had
			continue
		}
		from := ids.Len()
		id := append(strconv.AppendInt(number[:0], int64(d.record.Partition), 10), '@')
		ids.Write(strconv.AppendInt(id, d.record.Offset, 10))
		out[i].BrokerID = ids.String()[from:]
	}
	return out
}

// signal puts a token into a channel of capacity one, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
