package dispatch

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Drain waits until the sink has answered all messages and none waits for a second send, or until the context ends. It does not wait while
// the broker takes no messages. Then it gives back each row that is not the sink's: the claim is released, no attempt is counted. It returns
// the number of messages that the sink has not answered; those that it answers later as not sent are given back too.
func (d *Dispatch) Drain(ctx context.Context) (unanswered int) {
	for {
		d.mu.Lock()
		left := d.inFlight + len(d.retry) + d.order.Behind().Rows
		if left == 0 || d.breaker.state != breakerClosed || !d.May() || ctx.Err() != nil {
			released := d.giveBack()
			unanswered = d.inFlight
			d.unlock()
			d.acks.Add(released)
			return unanswered
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
// released stays SENDING until the claim expires, and stops no other. Callers hold mu, and hand the completions to ack.
func (d *Dispatch) giveBack() (released []outbox.Completion) {
	d.stopped = true
	waiting := append(d.retry, d.scouts...)
	d.retry, d.retryB, d.scouts = nil, 0, nil
	for _, e := range waiting {
		if c, ok := d.unsent(e); ok {
			released = append(released, c)
		}
	}
	_, released = d.out.take(nil, released)
	return released
}

// unsent gives a row back after a stop has begun. A row of which the broker may have a copy stays SENDING, and the next start takes its claim
// over. A row without a claim is PENDING; the position stays before it, and the next start reads it again. Callers hold mu.
func (d *Dispatch) unsent(e *tracker.Entry) (outbox.Completion, bool) {
	if e.Message.Claim == "" || e.Sends.Unsure {
		d.keyWaits(e, e, causeText(outbox.CauseOutage), time.Now()) // those behind it are given back
		return outbox.Completion{}, false
	}
	return d.deferRow(e, outbox.CauseOutage, time.Now())
}

// Return gives back rows that were reserved and claimed under a token, and not taken over: their claims are released.
func (d *Dispatch) Return(rows []outbox.Candidate, claim string) {
	released := make([]outbox.Completion, 0, len(rows))
	for i := range rows {
		if e := tracker.Of(rows[i].Entry); e != nil {
			d.tracker.Complete(e)
			released = append(released, outbox.Completion{Identity: rows[i].Identity, Action: outbox.ActionRelease, RetryCount: rows[i].RetryCount, Claim: claim, Entry: e})
		}
	}
	d.acks.Add(released)
}

// unanswered reports whether a result is no answer of the broker about the message, and notes on the row when the broker may have a copy.
func unanswered(e *tracker.Entry, r *sink.Result) bool {
	e.Sends.Unsure = e.Sends.Unsure || r.Class == outbox.ClassUnknown
	return r.Class == outbox.ClassOutage || r.Class == outbox.ClassService || r.Class == outbox.ClassUnknown && r.Scope != outbox.ScopeMessage
}
