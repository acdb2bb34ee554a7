package rocketmq

import (
	"context"
	"errors"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"go.uber.org/zap"
)

// Outcomes of messages while nothing is sent: Close did not wait for the answer, Close gives back what was not sent, and the
// relay may not publish.
var (
	closing = outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: reason("the relay was stopped before an answer came")}
	unsent  = outage("the relay was stopped before the message was sent")
	mayNot  = outage("%v", sink.ErrMayNot)
)

// sender is what a request needs, in a batch or alone, and what its result means.
type sender struct {
	ctx      context.Context // ends when Close stops waiting
	producer *producers
	remote   *remoting.Client
	brokers  *brokers
	topics   *topics
	log      *zap.Logger
	metrics  *metrics
	group    string
	maxBody  int
	lenient  bool
	may      func() bool // whether messages may be sent
}

// held returns the outcome of messages that are not sent now, and were not before.
func (s *sender) held(b *broker) outbox.Outcome {
	if s.ctx.Err() != nil {
		return unsent
	}
	if fault := b.Away(); fault != nil {
		return outbox.Outcome{Class: outbox.ClassOutage, Scope: b.Scope(), Reason: reason("%v", fault)}
	}
	return outbox.Outcome{}
}

// noteAnswer records that a broker answered a send, whatever the answer.
func noteAnswer(b *broker, err error) {
	if _, _, answered := answer(err); err == nil || answered {
		b.Answered(time.Now())
	}
}

// failure is the meaning of a failed request for its messages.
type failure struct {
	outcome       outbox.Outcome
	oneMessage    bool // the answer may concern only one of them
	silentMessage bool // one of them gets no answer, while the broker answers others
	requested     bool // a request was sent, or a connection was tried
}

// failed judges a failed request to the broker of a queue, and records what it says about that broker and about the route.
func (s *sender) failed(q *queue, sent time.Time, err error) (f failure) {
	v, b := classify(err), q.broker
	switch {
	case errors.Is(err, sink.ErrMayNot):
		f.outcome = mayNot
		return f
	case s.ctx.Err() != nil && v.class == outbox.ClassUnknown: // the error is our own
		f.outcome = closing
		return f
	case v.away && v.class == outbox.ClassUnknown:
		f.silentMessage = s.brokers.silent(b, sent, err)
	case v.away:
		s.brokers.lost(b, err)
	case v.stale:
		s.topics.lookAgain(q.topic)
	}
	f.oneMessage, f.requested = v.isolate, true
	f.outcome = outbox.Outcome{Class: v.class, Scope: v.class.Scope(), Reason: reason("%v", err)}
	switch {
	case v.class != outbox.ClassOutage && v.class != outbox.ClassUnknown:
	case v.stale:
		f.outcome.Scope = outbox.ScopeTopic
	default:
		f.outcome.Scope = b.Scope()
	}
	return f
}

// kept is the outcome of a message that the broker stored. A message that the broker may lose counts as published only if
// configured so.
func (s *sender) kept(b *broker, status primitive.SendStatus) (o outbox.Outcome) {
	fault := lessDurable(status)
	if o.LessDurable = fault != ""; o.LessDurable && !s.lenient { // its disk or replica is the broker's state, not the message's
		o.Class, o.Scope, o.Reason = outbox.ClassUnknown, b.Scope(), reason("%s", fault)
	}
	return o
}

func (s *sender) count(class outbox.Class, messages int) {
	s.metrics.requests.WithLabelValues(class.String()).Inc()
	s.metrics.batch.Observe(float64(messages))
}
