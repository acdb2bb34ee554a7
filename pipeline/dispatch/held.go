package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// A row whose table has no status (Message.LogOnly) cannot be left to a sweep. While its topic is suspended, or until its next
// attempt, it is held here: it counts as a row in memory, the checkpoint waits for it, and the reader stops when the limit is
// reached. A row whose part of the cluster is away stays in the retry buffer for the same reason.

// hold keeps a row until its topic works, and not before a time. Callers hold mu.
func (d *Dispatch) hold(e *tracker.Entry, until time.Time) {
	e.Sends.RetryAt = until
	d.held = append(d.held, e)
	d.heldB += e.Size
	d.kick()
}

// sendHeld returns the held rows whose time has come, in the order in which they came. Callers hold mu.
func (d *Dispatch) sendHeld(now time.Time) (ready []*outbox.Message) {
	var due []*tracker.Entry
	d.held = slices.DeleteFunc(d.held, func(e *tracker.Entry) bool {
		if now.Before(e.Sends.RetryAt) || d.topicSuspended(e.Message.Topic) {
			return false
		}
		d.heldB -= e.Size
		due = append(due, e)
		return true
	})
	slices.SortFunc(due, func(a, b *tracker.Entry) int { return cmp.Compare(a.Sends.Order, b.Sends.Order) })
	for _, e := range due {
		ready = append(ready, d.launch(e, now))
	}
	return ready
}

// tryLater keeps a row whose attempts are not used up until its next one; the count is in memory alone, like the row. Callers hold mu.
func (d *Dispatch) tryLater(e *tracker.Entry, rule outbox.Retry, now time.Time) {
	wait := rule.Backoff.Delay(e.RetryCount, d.Random())
	e.RetryCount++
	d.hold(e, now.Add(wait))
}

// refuseFaulty ends a row that can never be a message. Callers hold mu and hand the completion to ack.
func (d *Dispatch) refuseFaulty(e *tracker.Entry) outbox.Completion {
	m := e.Message
	c := outbox.Completion{Identity: m.Identity, Topic: m.Topic, Class: outbox.ClassPermanent, Reason: m.Fault, Since: m.Since, Entry: e}
	d.fail(&c, m)
	d.tracker.Complete(e)
	return c
}
