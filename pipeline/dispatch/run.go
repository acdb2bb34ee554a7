package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

const (
	tick         = 50 * time.Millisecond // while something waits
	idleTick     = time.Second           // while nothing does
	probeTimeout = 3 * time.Second
)

// Run does what time demands until the context ends: second sends, and probes of an open breaker and of suspended topics.
func (d *Dispatch) Run(ctx context.Context) error {
	if len(d.cfg.Ordered) > 0 {
		var gate sync.WaitGroup
		gate.Go(func() { d.keepOrder(ctx) })
		defer gate.Wait()
	}
	for outbox.Wait(ctx, d.pace(), d.wake) {
		d.watch(time.Now())
		d.probe(ctx)
		d.resend(time.Now())
		d.probeTopics(ctx)
	}
	return nil
}

func (d *Dispatch) pace() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waits() {
		return tick
	}
	return idleTick
}

// Drain waits until the sink has answered all messages and none waits for a second send, or until the context ends. It does not wait while
// the broker takes no messages. Then it gives back each row that is not the sink's: the claim is released, no attempt is counted. It returns
// the number of messages that the sink has not answered; those that it answers later as not sent are given back too.
func (d *Dispatch) Drain(ctx context.Context) (unanswered int) {
	for {
		d.mu.Lock()
		left := d.atSink.Rows + d.retry.Rows + d.order.Behind().Rows
		if left == 0 || d.breaker.state != breakerClosed || !d.May() || ctx.Err() != nil {
			defer d.handOn()
			d.giveBack()
			return d.atSink.Rows
		}
		d.waiters++
		changed := d.changed
		d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// giveBack leaves every row to the next start that is not the sink's; there is no second send from now on. A row whose claim cannot be
// released stays SENDING until the claim expires, and stops no other. Callers hold mu.
func (d *Dispatch) giveBack() {
	d.stopped = true
	waiting := append(d.retry.rows, d.probeRows...)
	d.retry, d.probeRows = buffer{}, nil
	for _, e := range waiting {
		d.unsent(e)
	}
}

// unsent gives a row back after a stop has begun. A row of which the broker may have a copy stays SENDING, and the next start takes its claim
// over. A row without a claim is PENDING; the position stays before it, and the next start reads it again. Callers hold mu.
func (d *Dispatch) unsent(e *tracker.Entry) {
	if e.Message.Claim == "" || e.Sends.Unsure {
		d.keyWaits(e, e, causeText(outbox.CauseOutage), time.Now()) // those behind it are given back
		return
	}
	d.deferRow(e, outbox.CauseOutage, time.Now())
}
