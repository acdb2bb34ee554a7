package dispatch

import (
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// partitionSends is how often a message is sent whose partition leaves it without an answer, before it is left to the sweep.
const partitionSends = 3

// completionLists are empty lists for results. A completion has 200 bytes, and no list is used after results returns.
var completionLists = sync.Pool{New: func() any { return new([]outbox.Completion) }}

// results takes outcomes from the sink, on the sink's goroutine: it decides and hands on, and never waits.
func (d *Dispatch) results(list []sink.Result) {
	now := time.Now()
	reused := completionLists.Get().(*[]outbox.Completion)
	completions := *reused
	d.mu.Lock()
	for i := range list {
		r := &list[i]
		e := tracker.Of(r.Message.Entry)
		if e == nil || !e.Sends.InFlight || e.Message != r.Message {
			d.tracker.Bug("the sink answered a message that is not in its hands", zap.String("table", r.Message.Table), zap.String("id", r.Message.ID))
			continue
		}
		d.land(e)
		if e.Sends.Scout > 0 {
			d.scoutBack(r.Class, now)
		}
		d.metrics.outcome(r, now)
		var next *tracker.Entry
		if r.Class == outbox.ClassNone {
			var leave []*tracker.Entry
			next, leave = d.order.Sent(e, now)
			d.leaveToSweep(outbox.CauseOrder, leave...)
		}
		if c, ok := d.decide(e, r, now); ok {
			completions = append(completions, c)
		}
		if next != nil {
			d.out.ready = append(d.out.ready, d.launch(next, now))
		}
	}
	ready, completions := d.out.take(nil, completions)
	d.quietSince = now
	d.broadcast()
	d.unlock()
	d.send(ready)
	if len(completions) > 0 {
		d.acks.Add(completions)
	}
	clear(completions)
	*reused = completions[:0]
	completionLists.Put(reused)
}

// decide says what becomes of a row by its outcome. Callers hold mu.
func (d *Dispatch) decide(e *tracker.Entry, r *sink.Result, now time.Time) (outbox.Completion, bool) {
	m := r.Message
	if m.Path == outbox.PathRedelivery {
		d.redelivered(e, r, now)
		return outbox.Completion{}, false
	}
	c := outbox.Completion{Identity: m.Identity, Topic: m.Topic, RetryCount: e.RetryCount, Claim: m.Claim, Class: r.Class, Reason: r.Reason, Since: m.Since, LogOnly: m.LogOnly, Path: m.Path, Sends: e.Sends.Count, TakenOver: m.Path != outbox.PathBinlog && m.Status == outbox.Sending, Entry: e}
	if m.Later && (r.Class == outbox.ClassPermanent || r.Class == outbox.ClassRefused) {
		d.brokerAnswered(m.Topic, now, false)
		d.delayRefusedBy(e, r.Reason)
		return outbox.Completion{}, false
	}
	if unanswered(e, r) && d.stopped {
		return d.unsent(e)
	}
	part := r.Scope == outbox.ScopePartition || r.Scope == outbox.ScopeTopic // others flow, and must not wait for this part
	switch r.Class {
	case outbox.ClassNone:
		d.brokerAnswered(m.Topic, now, true)
		c.Action, c.BrokerID = outbox.ActionMarkSent, r.BrokerID
		d.tracker.Complete(e)
		return c, true
	case outbox.ClassPermanent:
		d.brokerAnswered(m.Topic, now, false)
		d.fail(&c, m)
		d.keyWaits(e, e, reasonOf(&c), now) // until the table shows it as FAILED
		d.tracker.Complete(e)
		return c, true
	case outbox.ClassRefused:
		d.brokerAnswered(m.Topic, now, false)
		return d.refuse(e, c, now)
	case outbox.ClassTopic:
		d.brokerAnswered(m.Topic, now, false)
		d.suspend(m.Topic, r.Reason, now)
		if e.LogOnly {
			d.hold(e, now)
			return outbox.Completion{}, false
		}
		return d.deferRow(e, outbox.CauseTopic, now)
	case outbox.ClassUnknown:
		switch {
		case r.Scope == outbox.ScopeMessage: // the broker answers others: it is this message's own silence, and its own attempt
			d.breaker.undecided()
			return d.refuse(e, c, now)
		case part && e.Sends.Count >= partitionSends && !e.LogOnly:
			return d.leave(e, now)
		}
	case outbox.ClassOutage, outbox.ClassService:
		if part {
			d.brokerAnswered(m.Topic, now, false)
		}
		// Its broker is away, others work.
		part = part || e.Sends.Count > 1 && d.breaker.state == breakerClosed && d.lastOK[m.Topic].After(e.Sends.First)
		if part && !e.LogOnly {
			return d.leave(e, now)
		}
	}
	d.sendAgain(e, r, part, now)
	return outbox.Completion{}, false
}

// redelivered lets go of a row that is SENT: nothing is written, whatever the broker says. What it says of itself counts. Callers hold mu.
func (d *Dispatch) redelivered(e *tracker.Entry, r *sink.Result, now time.Time) {
	topic := r.Message.Topic
	part := r.Scope == outbox.ScopePartition || r.Scope == outbox.ScopeTopic
	switch {
	case r.Class == outbox.ClassTopic:
		d.brokerAnswered(topic, now, false)
		d.suspend(topic, r.Reason, now)
	case r.Class == outbox.ClassUnknown && r.Scope == outbox.ScopeMessage:
		d.breaker.undecided()
	case r.Class == outbox.ClassNone, r.Class == outbox.ClassPermanent, r.Class == outbox.ClassRefused, part:
		d.brokerAnswered(topic, now, r.Class == outbox.ClassNone)
	default:
		d.trouble = r.Class.String() + ": " + r.Reason
		d.breaker.failed(now)
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

// refuse uses one of the row's attempts. Callers hold mu.
func (d *Dispatch) refuse(e *tracker.Entry, c outbox.Completion, now time.Time) (outbox.Completion, bool) {
	m, rule := e.Message, d.rule(e.Message)
	switch {
	case rule.Spent(c.RetryCount + 1), d.reported.has(rule, m.Identity):
		d.fail(&c, m)
	case e.LogOnly:
		d.tryLater(e, rule, now)
		return outbox.Completion{}, false
	default:
		c.Action, c.Delay = outbox.ActionRetry, rule.Backoff.Delay(c.RetryCount, d.Random())
	}
	d.keyWaits(e, e, reasonOf(&c), now)
	d.tracker.Complete(e)
	return c, true
}

// rule says how often a message is sent and when: its row goes before its business type, that before its topic, that before its table.
func (d *Dispatch) rule(m *outbox.Message) outbox.Retry {
	r := outbox.Retry{Max: d.cfg.MaxRetry, Backoff: d.cfg.Backoff}.Override(d.cfg.Tables[m.Table]).Override(d.cfg.Topics[m.Topic])
	if m.BizType != "" {
		r = r.Override(d.cfg.Types[m.BizType])
	}
	if m.MaxRetry >= 0 {
		r.Max = m.MaxRetry
	}
	return r
}

// fail ends a row's attempts. A table without FAILED tries the row again after the longest wait, and reports it once.
func (d *Dispatch) fail(c *outbox.Completion, m *outbox.Message) {
	rule := d.rule(m)
	c.Action, c.Delay = outbox.ActionFail, rule.Backoff.Delay(math.MaxInt, d.Random())
	c.Reported = rule.Endless && rule.Spent(c.RetryCount) || !d.reported.add(rule, c.Identity)
	c.Key, c.BizType = m.Key, m.BizType
	if c.LogOnly = m.LogOnly; c.LogOnly {
		d.tracker.Carry(c, m)
	}
}

// resendPauses are before the second and further sends of a message.
var resendPauses = outbox.Backoff{Base: 200 * time.Millisecond, Max: 5 * time.Second}

// sendAgain puts a message into the retry buffer and feeds the breaker, unless the trouble is that of a part of the cluster. Callers
// hold mu.
func (d *Dispatch) sendAgain(e *tracker.Entry, r *sink.Result, part bool, now time.Time) {
	e.Sends.RetryAt = now.Add(resendPauses.Delay(e.Sends.Count-1, 0.5))
	d.retry = append(d.retry, e)
	d.retryB += e.Size
	d.trouble = r.Class.String() + ": " + r.Reason
	if !part && d.breaker.failed(now) {
		d.log.Warn("the broker does not take messages: sending paused, no retry counted",
			zap.String("class", r.Class.String()), zap.String("reason", r.Reason))
	}
	d.kick()
}

// brokerAnswered records a sign of life. Callers hold mu.
func (d *Dispatch) brokerAnswered(topic string, now time.Time, published bool) {
	d.unansweredSince = now
	if published {
		if len(d.lastOK) < maxTopics || !d.lastOK[topic].IsZero() {
			d.lastOK[topic] = now
		}
		if len(d.suspended) > 0 {
			d.resume(topic)
		}
	}
	d.trouble = ""
	if d.breaker.answered() {
		for _, e := range d.retry { // the outage is over for all of them
			e.Sends.RetryAt = now
		}
		d.log.Info("the broker takes messages again", zap.Int("to_be_sent_again", len(d.retry)))
		d.closed()
	}
}

// closed is called when the breaker has closed: it starts a sweep at once for the rows that were left to it meanwhile, and wakes
// all goroutines that wait. Callers hold mu.
func (d *Dispatch) closed() {
	d.sweeps.Trigger()
	d.kick()
	d.broadcast()
}
