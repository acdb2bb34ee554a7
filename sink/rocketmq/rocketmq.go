// Package rocketmq publishes to Apache RocketMQ, 4.x and 5.x brokers through their name servers.
//
// Guarantees, in addition to those of sink.Sink: a queue has one request in flight, and messages that arrive meanwhile form the
// next batch, so an idle queue holds nothing back and the order per key is kept. A failed batch does not stop the messages behind
// it. A key's queue is the hash of the sharding key over the topic's sorted write queues; a changed list is used only when
// nothing of the old one is outstanding. Topics are never created: messages of a topic without a route get ClassTopic. A broker
// that does not answer gets no messages until it answers a probe; messages without a key go to others.
//
// The message id is sent as UNIQ_KEY, which consumers see as the message's id, and in KEYS together with the business key; a
// business key with spaces makes several keys. Tag, sharding key and headers become properties. What RocketMQ would drop or
// change is refused for good: empty bodies and NULL, headers without name or value, names reserved by RocketMQ, text that is not
// UTF-8 or has \x01 or \x02. Nothing is compressed.
//
// A request without an answer, from a broker that answers others, does not make the broker count as away: its messages are sent
// again one by one, see isolation.go.
//
// A Sink owns MaxRequests workers, one goroutine that keeps the routes, one for each broker that is away, and up to four that
// send isolated messages; all end in Close. The client library leaves goroutines after its Shutdown that end by themselves:
// start-up timers for at most ten seconds, and its name server connection, which it never closes, for at most 45. Create one Sink
// per process.
package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Sink publishes to one RocketMQ cluster.
type Sink struct {
	cfg        Config
	batchBytes int
	patience   time.Duration // with lost queues
	log        *zap.Logger
	metrics    *metrics
	instance   string
	producer   rmq.Producer
	remote     *remoting
	health     *sink.Health // of the brokers

	ctx     context.Context // ends when Close stops waiting
	cancel  context.CancelFunc
	routes  chan struct{}
	workers sync.WaitGroup
	tasks   sync.WaitGroup
	drained func() // closes empty, once
	empty   chan struct{}

	mu          sync.Mutex
	wake        *sync.Cond // ready grew, or the workers may end
	topics      map[string]*topic
	brokers     map[string]*broker
	ready       []*queue
	isolated    isolation
	outstanding int // messages without a result
	closed      bool
}

var (
	_ sink.Sink    = (*Sink)(nil)
	_ sink.Delayer = (*Sink)(nil)
)

// New starts a sink. It does not wait for the cluster: messages get ClassOutage while it cannot be reached. The error names every
// fault of the configuration.
func New(cfg Config, log *zap.Logger, reg prometheus.Registerer) (*Sink, error) {
	if err := cfg.normalize(); err != nil {
		return nil, err
	}
	s := &Sink{
		cfg: cfg, batchBytes: min(batchBytes, cfg.MaxMessageBytes), patience: queuePatience, log: log, instance: instanceName(),
		remote: &remoting{nameServers: cfg.NameServers, accessKey: cfg.AccessKey, secretKey: cfg.SecretKey, may: cfg.May},
		health: sink.NewHealth(0), routes: make(chan struct{}, 1), empty: make(chan struct{}),
		topics: map[string]*topic{}, brokers: map[string]*broker{},
	}
	var err error
	if s.metrics, err = newMetrics(reg); err != nil {
		return nil, err
	}
	if s.producer, err = newProducer(cfg, s.instance, log); err != nil {
		return nil, err
	}
	s.wake = sync.NewCond(&s.mu)
	s.drained = sync.OnceFunc(func() { close(s.empty) })
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tasks.Add(1)
	go s.keepRoutes()
	s.workers.Add(cfg.MaxRequests)
	for range cfg.MaxRequests {
		go s.work()
	}
	return s, nil
}

// LongestDelay implements sink.Delayer.
func (s *Sink) LongestDelay() time.Duration {
	if !s.cfg.NativeDelay {
		return 0
	}
	return s.cfg.MaxDelay
}

// Send implements sink.Sink.
func (s *Sink) Send(batch []*outbox.Message, done func([]sink.Result)) {
	if len(batch) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go done(refuseAll(batch))
		return
	}
	s.outstanding += len(batch)
	from := &delivery{done: done}
	var t *topic
	for _, m := range batch {
		if t == nil || t.name != m.Topic {
			t = s.topic(m.Topic)
		}
		s.add(t, item{m, from})
	}
}

func refuseAll(batch []*outbox.Message) []sink.Result {
	results := make([]sink.Result, len(batch))
	for i, m := range batch {
		results[i] = sink.Result{Message: m, Outcome: outage("the sink is closed")}
	}
	return results
}

// topic returns the state of a topic and creates it when there is none. Called with the lock held.
func (s *Sink) topic(name string) *topic {
	t := s.topics[name]
	if t == nil {
		t = &topic{name: name}
		s.topics[name] = t
	}
	return t
}

// Close stops intake and waits for results until ctx ends; then what was sent comes to ClassUnknown, and what was not to
// ClassOutage. It may take up to three
// seconds more when a broker is frozen, the limit of a write, and six for each name server that is frozen while the
// library asks for a new topic, a constant of it. The error says how many messages were left.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errors.New("rocketmq: the sink is closed already")
	}
	s.closed = true
	s.settled(0)
	s.mu.Unlock()

	var left error
	select {
	case <-s.empty:
	case <-ctx.Done():
		s.mu.Lock()
		left = fmt.Errorf("rocketmq: %d messages had no result when the sink was closed", s.outstanding)
		s.mu.Unlock()
	}
	s.cancel() // ends each wait for an answer; a blocked write ends with its own limit
	s.workers.Wait()
	s.tasks.Wait()
	err := s.producer.Shutdown() // not earlier: sends read its flags without a lock
	leaveGlobals(s.log)
	return errors.Join(left, err)
}
