package rocketmq

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"go.uber.org/zap"
)

// publisher sends batches for one worker. Its slices are reused for each batch.
type publisher struct {
	*sender
	alone    *isolation
	encoder  encoder
	now      time.Time
	sent     time.Time // of the last attempt
	apart    []int     // indexes of the batch's messages that are sent alone
	rest     []int     // indexes of the batch's messages to send
	messages []*outbox.Message
	outcomes []outbox.Outcome
}

// work sends batches until the sink is closed and nothing is outstanding.
func (p *publisher) work() {
	for {
		q, batch := p.topics.next()
		if q == nil {
			return
		}
		p.topics.release(q, batch, p.publish(q, batch))
	}
}

// publish sends the messages of one queue, in order, and reports a result for each except those that are sent alone. It returns
// how many it reported.
func (p *publisher) publish(q *queue, batch []item) (answered int) {
	p.now = time.Now()
	p.rest, p.apart = p.rest[:0], p.apart[:0]
	p.outcomes = append(p.outcomes[:0], make([]outbox.Outcome, len(batch))...)
	for i, it := range batch {
		switch p.outcomes[i] = p.check(q, it.message); {
		case p.outcomes[i].Class != outbox.ClassNone:
		case p.alone.suspects(it.message):
			p.sendApart(q, batch, i, false)
		default:
			p.rest = append(p.rest, i)
		}
	}
	p.sendInParts(q, batch)
	clear(p.messages)
	if len(p.apart) > 0 {
		batch = p.withoutApart(batch)
	}
	report(batch, func(i int) outbox.Outcome { return p.outcomes[i] })
	return len(batch)
}

func (p *publisher) sendApart(q *queue, batch []item, i int, sent bool) {
	p.apart = append(p.apart, i)
	p.alone.add(suspect{batch[i], q, sent})
}

// withoutApart returns the messages that have an outcome, and moves their outcomes together.
func (p *publisher) withoutApart(batch []item) []item {
	kept := make([]item, 0, len(batch))
	outcomes := p.outcomes[:0]
	for i, it := range batch {
		if !slices.Contains(p.apart, i) {
			kept, outcomes = append(kept, it), append(outcomes, p.outcomes[i])
		}
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
	delayed := func(at int) bool { return delayed(batch[p.rest[at]].message, p.now) }
	for start := 0; start < len(p.rest); {
		end := start + 1
		for end < len(p.rest) && !delayed(start) && !delayed(end) {
			end++
		}
		p.send(q, batch, p.rest[start:end])
		start = end
	}
}

// send sends the messages in one request. When the broker's refusal may concern only one of them it sends both halves again, the
// first one first: the broker stores a batch whole or not at all, and the order of the accepted messages is kept.
func (p *publisher) send(q *queue, batch []item, part []int) {
	if o := p.held(q.broker); o.Class != outbox.ClassNone {
		p.set(part, o)
		return
	}
	result, err := p.patiently(q, batch, part)
	if err == nil {
		p.stored(q.broker, part, result)
		return
	}
	switch f := p.failed(q, p.sent, err); {
	case f.silentMessage:
		p.log.Info("a request got no answer while its broker answers others: its messages are sent again one by one",
			zap.String("topic", q.topic.name), zap.String("broker", q.broker.name), zap.Int("messages", len(part)))
		p.count(outbox.ClassUnknown, len(part))
		for _, i := range part {
			p.sendApart(q, batch, i, true)
		}
	case f.oneMessage && len(part) > 1:
		half := len(part) / 2
		p.send(q, batch, part[:half])
		p.send(q, batch, part[half:])
	default:
		if f.requested {
			p.count(f.outcome.Class, len(part))
		}
		p.set(part, f.outcome)
	}
}

// A busy broker refuses what waited in its queue for 200 ms, and the library needs a short time to learn a new topic's broker.
// Without a few more attempts each of these cases would send hundreds of messages through the table.
const (
	againPause    = 25 * time.Millisecond // doubled after each attempt
	againAttempts = 6
)

// patiently retries what may work after a pause, for most of a second. The queue waits meanwhile, so the order is kept.
func (p *publisher) patiently(q *queue, batch []item, part []int) (*primitive.SendResult, error) {
	wait := againPause
	for n := 1; ; n++ {
		result, err := p.attempt(q, batch, part)
		if err == nil || !classify(err).again || n == againAttempts || !outbox.Wait(p.ctx, wait, nil) {
			return result, err
		}
		wait *= 2
	}
}

// attempt is one request. It returns a panic of the library as an error: the library holds no lock after a panic.
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
	result, err = p.producer.send(p.ctx, *q.broker.addr.Load(), request)
	noteAnswer(q.broker, err)
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
	p.set(part, o)
	if ids := strings.Split(result.OffsetMsgID, ","); len(ids) == len(part) {
		for n, i := range part {
			p.outcomes[i].BrokerID = ids[n]
		}
	}
}

func (p *publisher) set(part []int, o outbox.Outcome) {
	for _, i := range part {
		p.outcomes[i] = o
	}
}
