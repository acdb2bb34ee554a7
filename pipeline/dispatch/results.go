package dispatch

import (
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// partitionSends is how often a message is sent whose partition leaves it without an answer, before it is left to the sweep.
const partitionSends = 3

// results takes outcomes from the sink, on the sink's goroutine: it decides and hands on, and never waits.
func (d *Dispatch) results(list []sink.Result) {
	now := time.Now()
	d.mu.Lock()
	defer d.handOn()
	for i := range list {
		r := &list[i]
		e := tracker.Of(r.Message.Entry)
		if e == nil || !e.Sends.InFlight || e.Message != r.Message {
			d.tracker.Bug("the sink answered a message that it does not have", zap.String("table", r.Message.Table), zap.String("id", r.Message.ID))
			continue
		}
		d.land(e)
		if e.Sends.Probes > 0 {
			d.probeBack(r.Class, now)
		}
		d.metrics.outcome(r, now)
		var next *tracker.Entry
		if r.Class == outbox.ClassNone {
			var behind []*tracker.Entry
			next, behind = d.order.Sent(e, now)
			d.leave(outbox.CauseOrder, behind...)
		}
		d.decide(e, r, now)
		if next != nil {
			d.launch(next, now)
		}
	}
	d.quietSince = now
	d.broadcast()
}

// decide says what becomes of a row by its outcome. Callers hold mu.
func (d *Dispatch) decide(e *tracker.Entry, r *sink.Result, now time.Time) {
	m := r.Message
	part := r.Scope == outbox.ScopePartition || r.Scope == outbox.ScopeTopic // others flow, and must not wait for this part
	if m.Path == outbox.PathRedelivery {
		d.redelivered(e, r, part, now)
		return
	}
	c := outbox.Completion{Identity: m.Identity, Topic: m.Topic, RetryCount: e.RetryCount, Claim: m.Claim, Class: r.Class, Reason: r.Reason, Since: m.Since, LogOnly: m.LogOnly, Path: m.Path, Sends: e.Sends.Count, TakenOver: m.Path != outbox.PathBinlog && m.Status == outbox.Sending}
	if answersMessage(r.Class) {
		d.answered(m.Topic, now, r.Class == outbox.ClassNone)
	} else if unanswered(e, r) && d.stopped {
		d.unsent(e)
		return
	}
	switch r.Class {
	case outbox.ClassNone:
		c.Action, c.BrokerID = outbox.ActionMarkSent, r.BrokerID
		d.complete(e, c)
		return
	case outbox.ClassPermanent, outbox.ClassRefused:
		if m.Later {
			d.delayRefusedBy(e, r.Reason)
			return
		}
		d.refuse(e, c, now)
		return
	case outbox.ClassTopic:
		d.suspend(m.Topic, r.Reason, now)
		if e.LogOnly {
			d.hold(e, now)
		} else {
			d.deferRow(e, outbox.CauseTopic, now)
		}
		return
	case outbox.ClassUnknown:
		switch {
		case r.Scope == outbox.ScopeMessage: // the broker answers others: it is this message's own silence, and its own attempt
			d.breaker.undecided()
			d.refuse(e, c, now)
			return
		case part && e.Sends.Count >= partitionSends && !e.LogOnly:
			d.leavePart(e, now)
			return
		}
	case outbox.ClassOutage, outbox.ClassService:
		if part {
			d.answered(m.Topic, now, false)
		}
		// Its broker is away, others work.
		part = part || e.Sends.Count > 1 && d.breaker.state == breakerClosed && d.lastOK[m.Topic].After(e.Sends.First)
		if part && !e.LogOnly {
			d.leavePart(e, now)
			return
		}
	}
	d.sendAgain(e, r, part, now)
}

// Found completes a row that was not handed over because the broker has it already, from an earlier process: as sent. Its key continues, as behind
// a row that the table shows as final.
func (d *Dispatch) Found(e *tracker.Entry) {
	m := e.Message
	d.mu.Lock()
	defer d.handOn()
	d.order.Final(m.Identity, time.Now())
	e.Sends.Count = max(1, e.Sends.Count) // a reading of the table that still shows the row does not wait for it
	d.complete(e, outbox.Completion{
		Identity: m.Identity, Topic: m.Topic, RetryCount: e.RetryCount, Claim: m.Claim, Since: m.Since, Path: m.Path,
		TakenOver: m.Status == outbox.Sending, Action: outbox.ActionMarkSent,
	})
}

// answersMessage reports whether a result of a class is an answer of the broker about the message.
func answersMessage(class outbox.Class) bool {
	switch class {
	case outbox.ClassNone, outbox.ClassPermanent, outbox.ClassRefused, outbox.ClassTopic:
		return true
	}
	return false
}

// unanswered reports whether a result is no answer of the broker about the message, and notes on the row when the broker may have a copy.
func unanswered(e *tracker.Entry, r *sink.Result) bool {
	e.Sends.Unsure = e.Sends.Unsure || r.Class == outbox.ClassUnknown
	return r.Class == outbox.ClassOutage || r.Class == outbox.ClassService || r.Class == outbox.ClassUnknown && r.Scope != outbox.ScopeMessage
}

// redelivered lets go of a row that is SENT: nothing is written, whatever the broker says. What it says of itself counts. Callers hold mu.
func (d *Dispatch) redelivered(e *tracker.Entry, r *sink.Result, part bool, now time.Time) {
	switch topic := r.Message.Topic; {
	case r.Class == outbox.ClassUnknown && r.Scope == outbox.ScopeMessage:
		d.breaker.undecided()
	case answersMessage(r.Class), part:
		d.answered(topic, now, r.Class == outbox.ClassNone)
		if r.Class == outbox.ClassTopic {
			d.suspend(topic, r.Reason, now)
		}
	default:
		d.failed(r, false, now)
	}
	d.tracker.Forget(e)
}

// delayRefusedBy leaves a row to a timer that the broker was asked to deliver later and did not take: its own time stays in the table,
// and at that time it is published like any other, and judged. Callers hold mu.
func (d *Dispatch) delayRefusedBy(e *tracker.Entry, reason string) {
	if !d.delayRefused {
		d.delayRefused = true
		d.log.Warn("the broker does not take a delayed message: the relay publishes such rows itself when they are due",
			zap.String("topic", e.Message.Topic), zap.String("message_id", e.Message.MessageID), zap.String("reason", reason))
	}
	row := e.Row()
	d.tracker.Drop(e, outbox.CauseNotDue)
	d.sweeps.DueIn(row, time.Second) // then the table says what is left
}

// refuse uses one of the row's attempts; a permanent refusal uses all of them. Callers hold mu.
func (d *Dispatch) refuse(e *tracker.Entry, c outbox.Completion, now time.Time) {
	m, rule := e.Message, d.attempts.rule(e.Message)
	switch {
	case c.Class == outbox.ClassPermanent || d.attempts.spent(rule, &c):
		d.fail(&c, m)
	case e.LogOnly: // the count is in memory alone, like the row
		wait := rule.Backoff.Delay(e.RetryCount, d.Random())
		e.RetryCount++
		d.hold(e, now.Add(wait))
		return
	default:
		c.Action, c.Delay = outbox.ActionRetry, rule.Backoff.Delay(c.RetryCount, d.Random())
	}
	d.keyWaits(e, e, reasonOf(&c), now) // until the table shows the outcome
	d.complete(e, c)
}

// fail ends a row's attempts. Callers hold mu.
func (d *Dispatch) fail(c *outbox.Completion, m *outbox.Message) {
	d.attempts.fail(c, m)
	if c.LogOnly {
		d.tracker.Carry(c, m)
	}
}
