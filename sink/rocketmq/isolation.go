package rocketmq

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"go.uber.org/zap"
)

// A request without an answer, while its broker answers others, is no sign of an outage: one of its messages makes something on
// the way, or the broker itself, fail. Each message is a suspect and is sent again alone, on its own connection, outside the
// queues: no other message waits for it, shares a batch with it, or loses a connection to it. A suspect that is answered is an
// ordinary message. One that is not gets ClassUnknown with ScopeMessage, is remembered, and is sent alone again when the caller
// repeats it. Messages without an answer are often stored, so an ordinary one may be stored twice.
const (
	aloneAtOnce   = 4
	answerTimeout = 3 * time.Second // the client library's own limit
	suspectMemory = time.Hour       // longer than the usual pause before the next attempt
	maxRemembered = 1000
)

// suspect is a message to be sent alone.
type suspect struct {
	item
	queue *queue
}

// isolation has the suspects. Sink.mu guards it.
type isolation struct {
	waiting []suspect
	senders int
	known   map[outbox.Identity]time.Time // messages that got no answer when sent alone, and the time
}

func (i *isolation) knows(id outbox.Identity) bool {
	if len(i.known) == 0 {
		return false
	}
	at, known := i.known[id]
	return known && time.Since(at) < suspectMemory
}

func (i *isolation) remember(id outbox.Identity) {
	if i.known == nil {
		i.known = map[outbox.Identity]time.Time{}
	}
	if len(i.known) >= maxRemembered {
		for other, at := range i.known {
			if time.Since(at) >= suspectMemory {
				delete(i.known, other)
			}
		}
	}
	if len(i.known) < maxRemembered { // beyond this limit each costs its batch one more time-out
		i.known[id] = time.Now()
	}
}

// sendAlone queues a suspect. Called with the lock held, from a goroutine that Close waits for.
func (s *Sink) sendAlone(x suspect) {
	s.isolated.waiting = append(s.isolated.waiting, x)
	if s.isolated.senders < aloneAtOnce {
		s.isolated.senders++
		s.tasks.Go(s.sendSuspects)
	}
}

// sendSuspects sends until no suspect is left.
func (s *Sink) sendSuspects() {
	e := encoder{maxBody: s.cfg.MaxMessageBytes, maxDelay: s.cfg.MaxDelay}
	for {
		s.mu.Lock()
		if len(s.isolated.waiting) == 0 {
			s.isolated.senders--
			s.mu.Unlock()
			return
		}
		x := s.isolated.waiting[0]
		s.isolated.waiting = s.isolated.waiting[1:]
		s.mu.Unlock()
		o := s.trySuspect(&e, x)
		s.mu.Lock()
		if o.Class == outbox.ClassUnknown && o.Scope == outbox.ScopeMessage {
			s.isolated.remember(x.message.Identity)
		} else if answered := o.Class != outbox.ClassUnknown && o.Class != outbox.ClassOutage; answered {
			delete(s.isolated.known, x.message.Identity)
		}
		s.mu.Unlock()
		s.answer([]item{x.item}, o)
	}
}

// trySuspect sends one suspect and returns its outcome.
func (s *Sink) trySuspect(e *encoder, x suspect) outbox.Outcome {
	b := x.queue.broker
	if s.ctx.Err() != nil {
		return closing
	}
	if fault := b.Away(); fault != nil {
		return outbox.Outcome{Class: outbox.ClassOutage, Scope: b.Scope(), Reason: reason("%v", fault)}
	}
	s.metrics.sentAlone.Inc()
	sent := time.Now()
	id, status, err := s.remote.send(s.ctx, *b.addr.Load(), s.cfg.Group, x.queue, x.message, e)
	if s.ctx.Err() != nil && err != nil {
		return closing
	}
	if _, _, answered := answer(err); err == nil || answered {
		b.Answered(time.Now())
	}
	if err == nil {
		o := s.kept(b, status)
		o.BrokerID = id
		s.count(o.Class, 1)
		return o
	}
	if errors.Is(err, sink.ErrMayNot) {
		return mayNot
	}
	v := classify(err)
	s.count(v.class, 1)
	switch {
	case v.away && v.class == outbox.ClassUnknown:
		if s.silent(b, sent, err) {
			s.log.Warn("a message sent alone gets no answer, while its broker answers others: only this message's attempts count",
				zap.String("table", x.message.Table), zap.String("id", x.message.ID), zap.String("topic", x.message.Topic), zap.String("broker", b.name))
			return outbox.Outcome{Class: v.class, Reason: reason("sent alone it got no answer, while the broker answers others: %v", err)}
		}
	case v.away:
		s.lost(b, err)
	case v.stale:
		s.askRoute(x.queue.topic)
	}
	return s.outcome(b, v, err)
}

// send publishes one message on a separate connection. Request and answer: SendMessageRequestHeader and SendMessageResponseHeader
// of org.apache.rocketmq.remoting.protocol.header.
func (r *remoting) send(ctx context.Context, addr, group string, q *queue, m *outbox.Message, e *encoder) (id string, status primitive.SendStatus, err error) {
	now := time.Now()
	var properties strings.Builder
	for _, p := range e.properties(m, now) {
		properties.WriteString(p.Name + "\x01" + p.Value + "\x02")
	}
	response, _, err := r.ask(ctx, answerTimeout, addr, requestSend, map[string]string{
		"producerGroup": group, "topic": m.Topic, "queueId": strconv.Itoa(q.id), "properties": properties.String(),
		"bornTimestamp": strconv.FormatInt(now.UnixMilli(), 10), "sysFlag": "0", "flag": "0", "reconsumeTimes": "0",
		"unitMode": "false", "batch": "false", "defaultTopic": "", "defaultTopicQueueNums": "4",
	}, m.Body)
	var refused *remoteError
	if errors.As(err, &refused) {
		switch refused.code {
		case codeFlushDisk:
			status, err = primitive.SendFlushDiskTimeout, nil
		case codeNoSlave:
			status, err = primitive.SendSlaveNotAvailable, nil
		case codeFlushSlave:
			status, err = primitive.SendFlushSlaveTimeout, nil
		}
	}
	return response.ExtFields["msgId"], status, err
}
