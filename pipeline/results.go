package pipeline

import (
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// unknownLimit is how often a message may stay without an answer, while others of its topic get one, before that counts as a
// refusal: then it is the message, not the broker.
const unknownLimit = 3

// results takes outcomes from the sink, on the sink's goroutine: it decides and hands on, and never waits.
func (p *Pipeline) results(list []sink.Result) {
	now := time.Now()
	completions := make([]outbox.Completion, 0, len(list))
	p.mu.Lock()
	for i := range list {
		r := &list[i]
		e := p.registry[r.Message.Identity]
		if e == nil || e.state != inFlight {
			p.metrics.bugs.Inc()
			p.log.Error("the sink answered a message that is not in its hands: please report this", zap.String("table", r.Message.Table), zap.String("id", r.Message.ID))
			continue
		}
		p.land(e)
		p.metrics.outcome(r, now)
		if s, ok := p.decide(e, r, now); ok {
			completions = append(completions, s)
		}
	}
	p.quietSince = now
	p.broadcast()
	p.mu.Unlock()
	if len(completions) > 0 {
		p.acks.Add(completions)
	}
}

// decide applies the table "Failures of a publish" of design 1. Callers hold mu.
func (p *Pipeline) decide(e *entry, r *sink.Result, now time.Time) (outbox.Completion, bool) {
	m := r.Message
	s := outbox.Completion{Identity: m.Identity, RetryCount: m.RetryCount, Claim: m.Claim, Class: r.Class, Reason: r.Reason, Since: m.Since, Entry: e}
	switch r.Class {
	case outbox.ClassNone:
		p.brokerAnswered(m.Topic, now, true)
		s.Action, s.BrokerID = outbox.ActionMarkSent, r.BrokerID
		return p.answer(e, s), true
	case outbox.ClassPermanent:
		p.brokerAnswered(m.Topic, now, false)
		s.Action = outbox.ActionFail
		return p.answer(e, s), true
	case outbox.ClassRefused:
		p.brokerAnswered(m.Topic, now, false)
		return p.refuse(e, m, s), true
	case outbox.ClassTopic:
		p.brokerAnswered(m.Topic, now, false)
		p.suspend(m.Topic, r.Reason, now)
		return p.deferRow(e, outbox.CauseTopic)
	case outbox.ClassUnknown:
		// Only a silence while the broker works counts. Any other is the broker's, and the trial of a half-open breaker must
		// come to hold, which opens the breaker again.
		if p.breaker.state == breakerClosed && p.lastOK[m.Topic].After(e.silence) {
			if e.unknown++; e.unknown >= unknownLimit {
				return p.refuse(e, m, s), true
			}
		}
		e.silence = now
	case outbox.ClassOutage, outbox.ClassService:
		if r.Scope == outbox.ScopePartition { // the cluster is there, and whatever waits for it must not wait for this part
			p.brokerAnswered(m.Topic, now, false)
			return p.deferRow(e, outbox.CauseOutage)
		}
		if e.sends > 1 && p.breaker.state == breakerClosed && p.lastOK[m.Topic].After(e.first) {
			return p.deferRow(e, outbox.CauseOutage) // its broker is away, others work
		}
	}
	p.hold(e, r, now)
	return outbox.Completion{}, false
}

// refuse uses one unit of the row's budget. Callers hold mu.
func (p *Pipeline) refuse(e *entry, m *outbox.Message, s outbox.Completion) outbox.Completion {
	budget := p.cfg.MaxRetry
	if m.MaxRetry >= 0 {
		budget = m.MaxRetry
	}
	if s.RetryCount >= budget {
		s.Action = outbox.ActionFail
		return p.answer(e, s)
	}
	s.Action, s.Delay = outbox.ActionRetry, p.cfg.Backoff.Delay(s.RetryCount, p.random())
	p.sweepIn(s.Delay)
	return p.answer(e, s)
}

func (p *Pipeline) random() float64 {
	if p.cfg.Random == nil {
		return 0.5
	}
	return p.cfg.Random()
}

// hold keeps a message for a second send and feeds the breaker. Callers hold mu.
func (p *Pipeline) hold(e *entry, r *sink.Result, now time.Time) {
	e.state = held
	e.retryAt = now.Add(min(100*time.Millisecond<<min(e.sends, 10), maxProbeDelay))
	p.heldBack = append(p.heldBack, e)
	p.heldB += e.size
	p.trouble = r.Class.String() + ": " + r.Reason
	if p.breaker.failed(now) {
		p.log.Warn("the broker does not take messages: waiting for it, the budget of no row is touched",
			zap.String("class", r.Class.String()), zap.String("reason", r.Reason))
	}
	p.kick()
}

// brokerAnswered records a sign of life. Callers hold mu.
func (p *Pipeline) brokerAnswered(topic string, now time.Time, published bool) {
	if published {
		if len(p.lastOK) < maxTopics || !p.lastOK[topic].IsZero() {
			p.lastOK[topic] = now
		}
		if len(p.suspended) > 0 {
			p.resume(topic)
		}
	}
	p.trouble = ""
	if p.breaker.answered() {
		for _, e := range p.heldBack { // the outage is over for all of them
			e.retryAt = now
		}
		p.log.Info("the broker takes messages again", zap.Int("held", len(p.heldBack)))
		p.kick()
	}
}

// Settled records completions that are durable: sent ones in the very batch that journals them, others once the table
// shows them. The low-water mark may move over their rows.
func (p *Pipeline) Settled(list []outbox.Completion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list {
		if e := p.owned(&list[i]); e != nil && e.seq != 0 {
			p.settleRow(e)
			e.seq = 0
		}
	}
}

// owned is the entry of a completion, unless its row has left the registry. Callers hold mu.
func (p *Pipeline) owned(c *outbox.Completion) *entry {
	if e, ok := c.Entry.(*entry); ok && p.registry[c.Identity] == e {
		return e
	}
	return nil
}

// Written records completions that the table shows: the rows leave the registry.
func (p *Pipeline) Written(list []outbox.Completion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list {
		if e := p.owned(&list[i]); e != nil && e.state >= answered {
			if list[i].Action != outbox.ActionMarkSent {
				p.activity.Add(1)
			}
			delete(p.registry, list[i].Identity)
			p.unwritten--
			if e.swept() {
				p.sweepUnwritten--
			}
		}
	}
	p.broadcast()
}

// Checkpoint returns the low-water mark with its epoch, and whether it moved since the last call.
func (p *Pipeline) Checkpoint() (at outbox.Position, epoch uint64, moved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mark.low == (outbox.Position{File: p.saved.File, Offset: p.saved.Offset}) {
		return p.saved, p.epoch, false
	}
	p.saved = p.mark.position()
	return p.saved, p.epoch, true
}
