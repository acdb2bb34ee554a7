package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// cause is why a delivery is isolated; 0 for one that only waits for others of its topic.
type cause uint8

const (
	refusedBatch   cause = iota + 1 // its batch was refused, perhaps because of a neighbour: it must be sent alone
	recreatedTopic                  // the client keeps the id of a topic that was deleted and created again
)

// again reports whether a failure on the main client deserves a second try, and which; 0 when the class is final.
func (s *Sink) again(d *delivery, class outbox.Class, err error) cause {
	switch {
	case d.partitions != 0:
		return 0
	case errors.Is(err, kerr.UnknownTopicID):
		return recreatedTopic
	case class == outbox.ClassPermanent, class == outbox.ClassRefused:
		return refusedBatch
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		s.isolation.renewClient()
	}
	return 0
}

// isolation sends messages one by one, each in its own batch, in the order of their failures, to find the one that caused its
// batch's refusal. It uses a separate client, which exists while there is something to send: in the main client a message could
// share a batch with others again.
//
// While a topic has messages here, later messages of the topic queue after them: otherwise they would overtake. Those that were
// in flight when the batch failed may still do so.
type isolation struct {
	count atomic.Int64 // messages here; saves Send the lock in the normal case

	mu     sync.Mutex
	queue  []isolated
	topics map[string]int // messages here
	stale  bool           // the main client can no longer be used
	ended  bool           // nothing is sent any more

	wake    chan struct{} // gets a token when queue or stale changed
	stop    chan struct{}
	stopped chan struct{}
}

type isolated struct {
	*delivery
	cause cause
}

func newIsolation() *isolation {
	return &isolation{topics: map[string]int{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
}

// add returns false when the sink is closed.
func (q *isolation) add(d *delivery, c cause) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return false
	}
	q.count.Add(1)
	q.topics[d.message.Topic]++
	q.queue = append(q.queue, isolated{d, c})
	signal(q.wake)
	return true
}

// behind queues the delivery if others of its topic are here.
func (q *isolation) behind(d *delivery) bool {
	if q.count.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.topics[d.message.Topic] == 0 {
		return false
	}
	q.count.Add(1)
	q.topics[d.message.Topic]++
	q.queue = append(q.queue, isolated{delivery: d})
	return true
}

func (q *isolation) renewClient() {
	q.mu.Lock()
	q.stale = true
	q.mu.Unlock()
	signal(q.wake)
}

// take returns what is queued, in order. Its messages count for their topic until leave.
func (q *isolation) take() (list []isolated, stale bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list, stale = q.queue, q.stale
	q.queue, q.stale = nil, false
	return list, stale
}

func (q *isolation) leave(d *delivery) {
	q.mu.Lock()
	q.count.Add(-1)
	if q.topics[d.message.Topic]--; q.topics[d.message.Topic] == 0 {
		delete(q.topics, d.message.Topic)
	}
	q.mu.Unlock()
}

func (q *isolation) run(s *Sink) {
	defer close(q.stopped)
	for stopped := false; !stopped; {
		select {
		case <-q.wake:
			stopped = !q.work(s)
		case <-q.stop:
			stopped = true
		}
	}
	q.mu.Lock()
	rest := q.queue
	q.queue, q.ended = nil, true
	q.mu.Unlock()
	s.giveBack(rest)
}

// giveBack reports messages that Close did not wait for.
func (s *Sink) giveBack(list []isolated) {
	for _, d := range list {
		s.results.finish(d.delivery, s.completion(d.delivery, errClosed))
	}
}

// work sends the queue and returns false when it was stopped.
func (q *isolation) work(s *Sink) bool {
	list, stale := q.take()
	if stale {
		s.renew()
	}
	if len(list) == 0 {
		return true
	}
	client, err := kgo.NewClient(s.options...)
	if err != nil { // impossible: the main client has the same configuration
		for _, d := range list {
			q.leave(d.delivery)
			s.results.finish(d.delivery, outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: "no second Kafka client: " + err.Error()})
		}
		return true
	}
	defer client.Close()
	e := episode{s, client, map[string]outbox.Outcome{}, map[string]bool{}}
	defer e.explain()
	for len(list) > 0 {
		s.purge(list)
		for i, d := range list {
			if !e.send(q, d) {
				s.giveBack(list[i:])
				return false
			}
		}
		if list, stale = q.take(); stale {
			s.renew()
		}
	}
	return true
}

// episode is one pass over the queue.
type episode struct {
	sink    *Sink
	client  *kgo.Client
	away    map[string]outbox.Outcome // topics that fail as a whole: their messages are not tried one by one
	culprit map[string]bool           // topics of refused batches: whether a message was also refused alone
}

// send sends one delivery until it has an outcome; false when it was stopped before.
func (e *episode) send(q *isolation, d isolated) bool {
	topic := d.message.Topic
	if o, is := e.away[topic]; is {
		q.leave(d.delivery)
		o.Reason = "Kafka: not sent after its batch was refused, because the topic's messages fail now"
		e.sink.results.finish(d.delivery, o)
		return true
	}
	e.sink.metrics.sentAlone.Inc()
	d.partitions, d.away = 0, false
	d.record.Timestamp = time.Time{} // the time of the new send
	answer := make(chan error, 1)
	e.client.Produce(d.delivery, &d.record, func(_ *kgo.Record, err error) { answer <- err })
	select {
	case err := <-answer:
		o := e.sink.completion(d.delivery, err)
		e.note(d, o)
		q.leave(d.delivery)
		e.sink.results.finish(d.delivery, o)
		return true
	case <-q.stop:
		return false
	}
}

func (e *episode) note(d isolated, o outbox.Outcome) {
	topic := d.message.Topic
	switch o.Class {
	case outbox.ClassTopic, outbox.ClassService, outbox.ClassOutage:
		e.away[topic] = outbox.Outcome{Class: o.Class, Scope: o.Scope}
	case outbox.ClassUnknown: // of this message; the others have not been sent
		e.away[topic] = outbox.Outcome{Class: outbox.ClassOutage, Scope: o.Scope}
	case outbox.ClassPermanent, outbox.ClassRefused:
		e.culprit[topic] = true
	case outbox.ClassNone:
		if _, known := e.culprit[topic]; !known && d.cause == refusedBatch {
			e.culprit[topic] = false // so far no message of the batch was refused alone
		}
	}
}

// explain logs batches that were refused for their own size (B38): the messages are published, but slowly and, where some were in
// flight, out of order.
func (e *episode) explain() {
	for topic, found := range e.culprit {
		if _, failed := e.away[topic]; !found && !failed {
			e.sink.log.Warn("Kafka refused a batch and then took each of its messages alone; if this repeats, lower "+
				"sink.kafka.max_message_bytes to the topic's max.message.bytes", zap.String("topic", topic))
		}
	}
}

// purge makes the main client forget topics that were deleted and created again; otherwise it would refuse them for ever (B35).
func (s *Sink) purge(list []isolated) {
	var topics []string
	for _, d := range list {
		if d.cause == recreatedTopic && !slices.Contains(topics, d.message.Topic) {
			topics = append(topics, d.message.Topic)
		}
	}
	if len(topics) > 0 {
		s.log.Info("topics were deleted and created again", zap.Strings("topics", topics))
		s.current().PurgeTopicsFromProducing(topics...)
	}
}

// renewLimit bounds each of the two waits of renew; both end at once when the producer id was refused.
const renewLimit = 2 * time.Second

// renew replaces the main client if its producer id was refused. The library keeps such a refusal for the life of a client, so a
// right granted later would have no effect.
func (s *Sink) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), renewLimit)
	defer cancel()
	if _, _, err := s.current().ProducerID(ctx); !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return
	}
	client, err := kgo.NewClient(s.options...)
	if err != nil {
		s.log.Error("cannot replace the Kafka client, restart to recover", zap.Error(err))
		return
	}
	s.life.Lock()
	old := s.client
	if s.closed {
		old = client
	} else {
		s.client = client
	}
	s.life.Unlock()
	ctx, cancel = context.WithTimeout(context.Background(), renewLimit)
	defer cancel()
	if err := old.Flush(ctx); err != nil { // makes the client refuse its messages, so that Close finds none to report as unknown
		s.log.Warn("the replaced Kafka client still held messages", zap.Error(err))
	}
	old.Close()
}
