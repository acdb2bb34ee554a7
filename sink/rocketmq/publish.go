package rocketmq

import (
	"fmt"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"go.uber.org/zap"
)

// closing is the outcome of what Close could not wait for.
var closing = outbox.Outcome{Class: outbox.ClassUnknown, Reason: reason("the relay was stopped before an answer came")}

// publisher sends batches for one worker. Its slices are reused from batch to batch.
type publisher struct {
	*Sink
	encoder  encoder
	now      time.Time
	rest     []int // indexes of the batch's messages that may be sent
	messages []*outbox.Message
	outcomes []outbox.Outcome
}

func newPublisher(s *Sink) *publisher {
	return &publisher{Sink: s, encoder: encoder{maxBody: s.cfg.MaxMessageBytes, maxDelay: s.cfg.MaxDelay, delays: s.cfg.NativeDelay}}
}

// publish sends the messages of one queue, in order, and reports a result for each.
func (p *publisher) publish(q *queue, batch []item) {
	p.now = time.Now()
	p.rest = p.rest[:0]
	p.outcomes = append(p.outcomes[:0], make([]outbox.Outcome, len(batch))...)
	for i, it := range batch {
		if p.outcomes[i] = p.check(q, it.message); p.outcomes[i].Class == outbox.ClassNone {
			p.rest = append(p.rest, i)
		}
	}
	p.sendInParts(q, batch)
	report(batch, func(i int) outbox.Outcome { return p.outcomes[i] })
	clear(p.messages)
}

// check answers what needs no round trip.
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

// send sends the messages in one request. A refusal that may be meant for one of them is narrowed down by sending both
// halves, the first one first: the broker stores a batch whole or not at all, and the order of what it takes stays.
func (p *publisher) send(q *queue, batch []item, part []int) {
	if p.ctx.Err() != nil {
		p.set(part, closing)
		return
	}
	if fault := q.broker.away(); fault != nil {
		p.set(part, outbox.Outcome{Class: outbox.ClassOutage, Scope: p.reach(q.broker), Reason: reason("%v", fault)})
		return
	}
	result, err := p.patiently(q, batch, part)
	if err == nil {
		p.stored(part, result)
		return
	}
	v := classify(err)
	if p.ctx.Err() != nil { // the error is our own
		p.set(part, closing)
		return
	}
	if v.away {
		p.lost(q.broker, err)
	}
	if v.stale {
		p.suspect(q.topic)
	}
	if v.isolate && len(part) > 1 {
		half := len(part) / 2
		p.send(q, batch, part[:half])
		p.send(q, batch, part[half:])
		return
	}
	p.count(v.class, len(part))
	scope := outbox.ScopeMessage
	if v.class == outbox.ClassOutage && v.away {
		scope = p.reach(q.broker)
	}
	p.set(part, outbox.Outcome{Class: v.class, Scope: scope, Reason: reason("%v", err)})
}

// reach says how far the absence of a broker reaches: to its own queues while others work.
func (p *publisher) reach(b *broker) outbox.Scope {
	if p.othersWork(b) {
		return outbox.ScopePartition
	}
	return outbox.ScopeCluster
}

// A busy broker refuses what waited in its queue for 200 ms, and the library does not know a new topic's broker for a
// moment. Without a few more attempts each of these would send hundreds of messages the long way over the table.
const (
	againPause    = 25 * time.Millisecond // doubled after each attempt
	againAttempts = 6
)

// patiently sends again what may work after a pause, for most of a second. The queue waits meanwhile, so order stays.
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

// attempt is one request. A panic of the library is an error like others: it holds no lock that a panic leaves taken.
func (p *publisher) attempt(q *queue, batch []item, part []int) (result *primitive.SendResult, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			p.log.Error("the RocketMQ client library panicked", zap.Any("panic", cause), zap.Stack("stack"))
			result, err = nil, fmt.Errorf("the client library panicked: %v", cause)
		}
	}()
	// The result of a failed send must not be printed: its String dereferences nil.
	return p.producer.SendSync(p.ctx, p.request(q, batch, part))
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
func (p *publisher) stored(part []int, result *primitive.SendResult) {
	o := outbox.Outcome{}
	if fault := weak(result.Status); fault != "" {
		o.Weak = true
		if p.cfg.StrictDurability {
			o.Class, o.Reason = outbox.ClassUnknown, reason("%s", fault)
		}
	}
	p.count(o.Class, len(part))
	ids := strings.Split(result.OffsetMsgID, ",")
	for n, i := range part {
		p.outcomes[i] = o
		if len(ids) == len(part) {
			p.outcomes[i].BrokerID = ids[n]
		}
	}
}

func (p *publisher) set(part []int, o outbox.Outcome) {
	for _, i := range part {
		p.outcomes[i] = o
	}
}

func (p *publisher) count(class outbox.Class, messages int) {
	p.metrics.requests.WithLabelValues(class.String()).Inc()
	p.metrics.batch.Observe(float64(messages))
}

// suspect asks for a topic's route again.
func (s *Sink) suspect(t *topic) {
	s.mu.Lock()
	t.stale = true
	s.mu.Unlock()
	s.wantRoutes()
}
