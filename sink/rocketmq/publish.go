package rocketmq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"go.uber.org/zap"
)

// closing is the outcome of messages that Close did not wait for.
var closing = outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: reason("the relay was stopped before an answer came")}

// unsent is the outcome of what Close gives back without having sent it.
var unsent = outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: reason("the relay was stopped before the message was sent")}

// mayNot is the outcome while Config.May returns false.
var mayNot = outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: reason("%v", sink.ErrMayNot)}

// may returns Config.May.
func (s *Sink) may() bool { return s.cfg.May == nil || s.cfg.May() }

// publisher sends batches for one worker. Its slices are reused for each batch.
type publisher struct {
	*Sink
	encoder  encoder
	now      time.Time
	sent     time.Time // of the last attempt
	isolated []int     // indexes of the batch's messages without a result, ascending
	rest     []int     // indexes of the batch's messages to send
	messages []*outbox.Message
	outcomes []outbox.Outcome
}

func newPublisher(s *Sink) *publisher {
	return &publisher{Sink: s, encoder: encoder{maxBody: s.cfg.MaxMessageBytes, maxDelay: s.cfg.MaxDelay}}
}

// publish sends the messages of one queue, in order, and reports a result for each except those that it isolates. It returns how
// many it reported.
func (p *publisher) publish(q *queue, batch []item) (answered int) {
	p.now = time.Now()
	p.rest, p.isolated = p.rest[:0], p.isolated[:0]
	p.outcomes = append(p.outcomes[:0], make([]outbox.Outcome, len(batch))...)
	for i, it := range batch {
		if p.outcomes[i] = p.check(q, it.message); p.outcomes[i].Class == outbox.ClassNone {
			p.rest = append(p.rest, i)
		}
	}
	p.sendInParts(q, batch)
	clear(p.messages)
	if len(p.isolated) > 0 {
		batch = p.withoutIsolated(batch)
	}
	report(batch, func(i int) outbox.Outcome { return p.outcomes[i] })
	return len(batch)
}

// withoutIsolated returns the messages that have an outcome, and moves their outcomes together.
func (p *publisher) withoutIsolated(batch []item) []item {
	kept := make([]item, 0, len(batch))
	outcomes, isolated := p.outcomes[:0], p.isolated
	for i, it := range batch {
		if len(isolated) > 0 && isolated[0] == i {
			isolated = isolated[1:]
			continue
		}
		kept, outcomes = append(kept, it), append(outcomes, p.outcomes[i])
	}
	p.outcomes = outcomes
	return kept
}

// check returns the outcomes that need no round trip.
func (p *publisher) check(q *queue, m *outbox.Message) outbox.Outcome {
	if m.Partition >= 0 && int(m.Partition) != q.index {
		// Not permanent: a topic can get more queues.
		return outbox.Outcome{Class: outbox.ClassRefused, Reason: reason("topic %s has no partition %d: its write queues are numbered from 0 over brokers in order of name", m.Topic, m.Partition)}
	}
	if fault := p.encoder.fault(m, p.now); fault != "" {
		return outbox.Outcome{Class: outbox.ClassPermanent, Reason: reason("%s", fault)}
	}
	return outbox.Outcome{}
}

// sendInParts cuts at delayed messages: a broker ignores the delay of a message in a batch and delivers it at once.
func (p *publisher) sendInParts(q *queue, batch []item) {
	for start := 0; start < len(p.rest); {
		end := start + 1
		for end < len(p.rest) && !p.delayed(batch, start) && !p.delayed(batch, end) {
			end++
		}
		p.send(q, batch, p.rest[start:end])
		start = end
	}
}

func (p *publisher) delayed(batch []item, i int) bool {
	return p.encoder.delayed(batch[p.rest[i]].message, p.now)
}

// send sends the messages in one request. When the broker's refusal may concern only one of them it sends both halves again, the
// first one first: the broker stores a batch whole or not at all, and the order of the accepted messages is kept.
func (p *publisher) send(q *queue, batch []item, part []int) {
	if p.ctx.Err() != nil {
		p.set(part, unsent)
		return
	}
	if fault := q.broker.Away(); fault != nil {
		p.set(part, outbox.Outcome{Class: outbox.ClassOutage, Scope: q.broker.Scope(), Reason: reason("%v", fault)})
		return
	}
	result, err := p.patiently(q, batch, part)
	if err == nil {
		p.stored(q.broker, part, result)
		return
	}
	if errors.Is(err, sink.ErrMayNot) {
		p.set(part, mayNot)
		return
	}
	v := classify(err)
	if p.ctx.Err() != nil && v.class == outbox.ClassUnknown { // the error is our own
		p.set(part, closing)
		return
	}
	switch {
	case v.away && v.class == outbox.ClassUnknown:
		if p.silent(q.broker, p.sent, err) {
			p.isolate(q, batch, part)
			return
		}
	case v.away:
		p.lost(q.broker, err)
	case v.stale:
		p.askRoute(q.topic)
	}
	if v.isolate && len(part) > 1 {
		half := len(part) / 2
		p.send(q, batch, part[:half])
		p.send(q, batch, part[half:])
		return
	}
	p.count(v.class, len(part))
	p.set(part, p.outcome(q.broker, v, err))
}

// isolate takes the messages of a request without an answer out of their batch.
func (p *publisher) isolate(q *queue, batch []item, part []int) {
	p.log.Info("a request got no answer while its broker answers others: its messages are sent again one by one",
		zap.String("topic", q.topic.name), zap.String("broker", q.broker.name), zap.Int("messages", len(part)))
	p.count(outbox.ClassUnknown, len(part))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range part {
		p.isolated = append(p.isolated, i)
		p.sendAlone(suspect{batch[i], q})
	}
}

// outcome returns class, scope and reason of a failed request.
func (s *Sink) outcome(b *broker, v completion, err error) outbox.Outcome {
	o := outbox.Outcome{Class: v.class, Scope: v.class.Scope(), Reason: reason("%v", err)}
	switch {
	case v.class != outbox.ClassOutage && v.class != outbox.ClassUnknown:
	case v.stale:
		o.Scope = outbox.ScopeTopic
	default:
		o.Scope = b.Scope()
	}
	return o
}

// A busy broker refuses what waited in its queue for 200 ms, and the library needs a short time to learn a new topic's broker.
// Without a few more attempts each of these cases would send hundreds of messages through the table.
const (
	againPause    = 25 * time.Millisecond // doubled after each attempt
	againAttempts = 6
)

// patiently retries what may work after a pause, for most of a second. The queue waits meanwhile, so the order is kept.
func (p *publisher) patiently(q *queue, batch []item, part []int) (*primitive.SendResult, error) {
	pause := againPause
	for n := 1; ; n++ {
		result, err := p.attempt(q, batch, part)
		if err == nil || !classify(err).again || n == againAttempts {
			return result, err
		}
		select {
		case <-p.ctx.Done():
			return result, err
		case <-time.After(pause):
			pause *= 2
		}
	}
}

// attempt is one request. It turns a panic of the library into an error: the library holds no lock after a panic.
func (p *publisher) attempt(q *queue, batch []item, part []int) (result *primitive.SendResult, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			p.log.Error("the RocketMQ client library panicked", zap.Any("panic", cause), zap.Stack("stack"))
			result, err = nil, fmt.Errorf("the client library panicked: %v", cause)
		}
	}()
	request := p.request(q, batch, part)
	p.sent = time.Now()
	if !p.may() {
		return nil, sink.ErrMayNot
	}
	// The result of a failed send must not be printed: its String dereferences nil.
	result, err = p.producer.SendSync(p.ctx, request)
	if _, _, answered := answer(err); err == nil || answered {
		q.broker.Answered(time.Now())
	}
	return result, err
}

func (p *publisher) request(q *queue, batch []item, part []int) *primitive.Message {
	if len(part) == 1 {
		return p.encoder.single(batch[part[0]].message, q.target, p.now)
	}
	p.messages = p.messages[:0]
	for _, i := range part {
		p.messages = append(p.messages, batch[i].message)
	}
	return p.encoder.many(p.messages, q.target, p.now)
}

// stored records a success. The broker's ids of a batch come as one list in the order of the messages.
func (p *publisher) stored(b *broker, part []int, result *primitive.SendResult) {
	o := p.kept(b, result.Status)
	p.count(o.Class, len(part))
	ids := strings.Split(result.OffsetMsgID, ",")
	for n, i := range part {
		p.outcomes[i] = o
		if len(ids) == len(part) {
			p.outcomes[i].BrokerID = ids[n]
		}
	}
}

// kept is the outcome of a message that the broker stored. A message that the broker may lose counts as published only if
// configured so.
func (s *Sink) kept(b *broker, status primitive.SendStatus) (o outbox.Outcome) {
	fault := lessDurable(status)
	if o.LessDurable = fault != ""; o.LessDurable && !s.cfg.Lenient { // its disk or replica is the broker's state, not the message's
		o.Class, o.Scope, o.Reason = outbox.ClassUnknown, b.Scope(), reason("%s", fault)
	}
	return o
}

func (p *publisher) set(part []int, o outbox.Outcome) {
	for _, i := range part {
		p.outcomes[i] = o
	}
}

func (s *Sink) count(class outbox.Class, messages int) {
	s.metrics.requests.WithLabelValues(class.String()).Inc()
	s.metrics.batch.Observe(float64(messages))
}

// askRoute requests a new look-up of a topic's route.
func (s *Sink) askRoute(t *topic) {
	s.mu.Lock()
	t.stale = true
	s.mu.Unlock()
	s.wantRoutes()
}
