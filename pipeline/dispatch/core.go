package dispatch

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/keyorder"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// core is what the parts of Dispatch share: the lock, and what is handed on when it is released. broker, ordered and flight embed it.
type core struct {
	cfg       Config
	tracker   *tracker.Tracker
	sweeps    tracker.Sweeps
	sink      sink.Sink
	answers   func([]sink.Result) // takes the sink's answers
	acks      Acks
	log       *zap.Logger
	wake      chan struct{} // buffered 1: Run looks at its timers again
	orderWake chan struct{} // buffered 1: keepOrder has something to do

	mu       sync.Mutex      // of all parts
	order    *keyorder.Order // of the tables that keep the order of their keys
	ready    []*outbox.Message
	released *[]outbox.Completion // nil: none; from completionLists
	changed  chan struct{}        // closed and replaced when goroutines wait for room
	waiters  int
}

// completionLists are empty lists. A completion has 200 bytes, and acks do not keep the list.
var completionLists = sync.Pool{New: func() any { return new([]outbox.Completion) }}

// handOn releases mu and hands on what was decided under it: messages to the sink, completions to ack. It wakes keepOrder when that has
// something to do.
func (c *core) handOn() {
	ready, released, wakes := c.ready, c.released, c.order.Wakes()
	c.ready, c.released = nil, nil
	c.mu.Unlock()
	if wakes {
		signal(c.orderWake)
	}
	if len(ready) > 0 {
		c.sink.Send(ready, c.answers)
	}
	if released != nil {
		c.acks.Add(*released)
		clear(*released)
		*released = (*released)[:0]
		completionLists.Put(released)
	}
}

// complete passes a row on to ack. Callers hold mu.
func (c *core) complete(e *tracker.Entry, one outbox.Completion) {
	e.Sends.First = time.Time{}
	c.tracker.Complete(e)
	if c.released == nil {
		c.released = completionLists.Get().(*[]outbox.Completion)
	}
	one.Entry = e
	*c.released = append(*c.released, one)
}

// leave leaves rows to the sweep that the order of their keys has. A claim of ours is given back by a completion, which keeps the row owned
// until the table has it. Callers hold mu.
func (c *core) leave(cause outbox.Cause, rows ...*tracker.Entry) {
	for _, e := range rows {
		if e.Message.Claim == "" {
			c.tracker.Drop(e, cause)
			continue
		}
		c.tracker.Activity.Defer(cause, 1)
		c.complete(e, outbox.Completion{Identity: e.Message.Identity, Action: outbox.ActionRelease, RetryCount: e.RetryCount, Claim: e.Message.Claim})
	}
}

// keyWaits makes the key of a row wait that is not at the sink and was not sent, and leaves the rows behind it to the sweep. writes is its entry
// while a completion is being written to the table, nil when the row has no owner any more. Callers hold mu, and have not completed it.
func (c *core) keyWaits(e, writes *tracker.Entry, why string, now time.Time) {
	c.leave(outbox.CauseOrder, c.order.Unsent(e, writes, why, now)...)
}

// deferRow leaves a row to the sweep, and those behind it. Callers hold mu.
func (c *core) deferRow(e *tracker.Entry, cause outbox.Cause, now time.Time) {
	var writes *tracker.Entry
	if e.Message.Claim != "" {
		writes = e
	}
	c.keyWaits(e, writes, causeText(cause), now)
	c.leave(cause, e)
}

// Changed returns a channel that is closed when Room or Closed may have changed, as far as the sink is the reason.
func (c *core) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiters++
	return c.changed
}

// broadcast wakes the goroutines that wait for room. Callers hold mu.
func (c *core) broadcast() {
	if c.waiters > 0 {
		close(c.changed)
		c.changed = make(chan struct{})
		c.waiters = 0
	}
}

// kick makes Run look at its timers.
func (c *core) kick() { signal(c.wake) }

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// May reports whether this relay may publish.
func (c *core) May() bool { return c.cfg.May == nil || c.cfg.May() }

// MaxBytes is how many bytes may be in flight.
func (c *core) MaxBytes() int { return c.cfg.MaxInFlightBytes }

// Several is Config.Several.
func (c *core) Several() bool { return c.cfg.Several }

// LongestDelay is Config.LongestDelay.
func (c *core) LongestDelay() time.Duration { return c.cfg.LongestDelay }

// Random is the jitter of pauses, in [0,1).
func (c *core) Random() float64 {
	if c.cfg.Random == nil {
		return 0.5
	}
	return c.cfg.Random()
}
