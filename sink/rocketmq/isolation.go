package rocketmq

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
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
	sent  bool // in a request without an answer: it may be stored
}

// isolation sends the suspects.
type isolation struct {
	*sender
	senders sync.WaitGroup

	mu      sync.Mutex
	waiting []suspect
	running int                           // senders
	known   map[outbox.Identity]time.Time // messages that got no answer when sent alone, and the time
}

// suspects reports whether a message got no answer when it was sent alone.
func (s *isolation) suspects(m *outbox.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.known[m.Identity]
	return known && time.Since(at) < suspectMemory
}

// remember keeps what a suspect came to. Called with the lock held.
func (s *isolation) remember(id outbox.Identity, o outbox.Outcome) {
	switch {
	case o.Class == outbox.ClassUnknown && o.Scope == outbox.ScopeMessage:
		if len(s.known) >= maxRemembered {
			for other, at := range s.known {
				if time.Since(at) >= suspectMemory {
					delete(s.known, other)
				}
			}
		}
		if len(s.known) < maxRemembered { // beyond this limit each costs its batch one more time-out
			s.known[id] = time.Now()
		}
	case o.Class != outbox.ClassUnknown && o.Class != outbox.ClassOutage: // it was answered
		delete(s.known, id)
	}
}

// add queues a suspect. Called from a goroutine that Close waits for.
func (s *isolation) add(x suspect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, x)
	if s.running < aloneAtOnce {
		s.running++
		s.senders.Go(s.work)
	}
}

// work sends until no suspect is left.
func (s *isolation) work() {
	e := encoder{maxBody: s.maxBody}
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.running--
			s.mu.Unlock()
			return
		}
		x := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		o := s.try(&e, x)
		s.mu.Lock()
		s.remember(x.message.Identity, o)
		s.mu.Unlock()
		s.topics.answer([]item{x.item}, o)
	}
}

// try sends one suspect and returns its outcome.
func (s *isolation) try(e *encoder, x suspect) outbox.Outcome {
	b := x.queue.broker
	switch o := s.held(b); {
	case x.sent && s.ctx.Err() != nil:
		return closing
	case o.Class != outbox.ClassNone && x.sent:
		o.Class = outbox.ClassUnknown
		return o
	case o.Class != outbox.ClassNone:
		return o
	}
	s.metrics.sentAlone.Inc()
	sent := time.Now()
	id, status, err := s.sendAlone(s.ctx, x.queue, x.message, e)
	noteAnswer(b, err)
	if err == nil {
		o := s.kept(b, status)
		o.BrokerID = id
		s.count(o.Class, 1)
		return o
	}
	if s.ctx.Err() != nil {
		return closing
	}
	f := s.failed(x.queue, sent, err)
	if f.silentMessage {
		s.log.Warn("a message sent alone gets no answer, while its broker answers others: only this message's attempts count",
			zap.String("table", x.message.Table), zap.String("id", x.message.ID), zap.String("topic", x.message.Topic), zap.String("broker", b.name))
		f.outcome = outbox.Outcome{Class: outbox.ClassUnknown, Reason: reason("sent alone it got no answer, while the broker answers others: %v", err)}
	}
	if x.sent && f.outcome.Class == outbox.ClassOutage { // this time nothing was stored
		f.outcome.Class = outbox.ClassUnknown
	}
	if f.requested {
		s.count(f.outcome.Class, 1)
	}
	return f.outcome
}

// sendAlone publishes one message on a separate connection. Request and answer: SendMessageRequestHeader and
// SendMessageResponseHeader of org.apache.rocketmq.remoting.protocol.header.
func (s *sender) sendAlone(ctx context.Context, q *queue, m *outbox.Message, e *encoder) (id string, status primitive.SendStatus, err error) {
	now := time.Now()
	var properties strings.Builder
	for _, p := range e.properties(m, now) {
		properties.WriteString(p.Name + "\x01" + p.Value + "\x02")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := s.remote.Dial(ctx, *q.broker.addr.Load())
	if err != nil {
		return "", 0, err
	}
	defer conn.Close()
	if !s.may() {
		return "", 0, sink.ErrMayNot
	}
	h, _, err := conn.Ask(answerTimeout, remoting.Send, map[string]string{
		"producerGroup": s.group, "topic": m.Topic, "queueId": strconv.Itoa(q.id), "properties": properties.String(),
		"bornTimestamp": strconv.FormatInt(now.UnixMilli(), 10), "sysFlag": "0", "flag": "0", "reconsumeTimes": "0",
		"unitMode": "false", "batch": "false", "defaultTopic": "", "defaultTopicQueueNums": "4",
	}, m.Body)
	for code, weak := range map[int]primitive.SendStatus{
		remoting.FlushDisk: primitive.SendFlushDiskTimeout, remoting.NoSlave: primitive.SendSlaveNotAvailable, remoting.FlushSlave: primitive.SendFlushSlaveTimeout,
	} {
		if remoting.IsCode(err, code) {
			status, err = weak, nil
		}
	}
	return h.ExtFields["msgId"], status, err
}
