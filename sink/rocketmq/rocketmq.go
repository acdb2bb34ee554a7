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
// A Sink owns 32 workers, one goroutine that keeps the routes, one for each broker that is away, and up to four that
// send isolated messages; all end in Close. The client library leaves goroutines after its Shutdown that end by themselves:
// start-up timers for at most ten seconds, and its name server connection, which it never closes, for at most 45. Create one Sink
// per process.
package rocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Sink publishes to one RocketMQ cluster.
type Sink struct {
	group    string
	delays   bool // the brokers have timers
	log      *zap.Logger
	instance string
	producer *producers
	remote   *remoting.Client
	brokers  *brokers
	topics   *topics
	alone    *isolation

	cancel  context.CancelFunc // ends the wait for answers
	workers sync.WaitGroup
	routes  sync.WaitGroup
}

var (
	_ sink.Sink    = (*Sink)(nil)
	_ sink.Delayer = (*Sink)(nil)
)

// open builds the parts in the order in which one needs the other, and starts them.
func open(cfg Section, may func() bool, log *zap.Logger, reg prometheus.Registerer) (*Sink, error) {
	cfg.Group, cfg.MaxMessageBytes = cmp.Or(cfg.Group, NewSection().Group), cmp.Or(cfg.MaxMessageBytes, NewSection().MaxMessageBytes)
	if may == nil {
		may = func() bool { return true }
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	instance := instanceName()
	producer, err := newProducers(cfg, instance, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	remote := &remoting.Client{Names: cfg.NameServers, NamesLimit: askLimit, AccessKey: cfg.AccessKey, SecretKey: cfg.SecretKey.Get}
	b := &brokers{
		remote: remote, instance: instance, group: cfg.Group, log: log, up: m.up, health: sink.NewHealth(0), ctx: ctx, known: map[string]*broker{},
	}
	t := &topics{
		queues: newQueues(min(batchBytes, int(cfg.MaxMessageBytes))), remote: remote, brokers: b, log: log, changes: m.changes,
		patience: queuePatience, wanted: make(chan struct{}, 1), byName: map[string]*topic{},
	}
	out := &sender{
		ctx: ctx, producer: producer, remote: remote, brokers: b, topics: t, log: log, metrics: m,
		group: cfg.Group, maxBody: int(cfg.MaxMessageBytes), lenient: cfg.Durability == "lenient", may: may,
	}
	s := &Sink{
		group: cfg.Group, delays: cfg.NativeDelay, log: log, instance: instance, producer: producer, remote: remote, brokers: b, topics: t,
		alone: &isolation{sender: out, known: map[outbox.Identity]time.Time{}}, cancel: cancel,
	}
	s.routes.Go(func() { t.keep(ctx) })
	for range maxRequests {
		s.workers.Go((&publisher{sender: out, alone: s.alone, encoder: encoder{maxBody: out.maxBody}}).work)
	}
	return s, nil
}

// LongestDelay implements sink.Delayer.
func (s *Sink) LongestDelay() time.Duration {
	if !s.delays {
		return 0
	}
	return maxDelay
}

// Send implements sink.Sink.
func (s *Sink) Send(batch []*outbox.Message, done func([]sink.Result)) {
	if len(batch) == 0 {
		return
	}
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	if s.topics.closed {
		go done(sink.Results(batch, sink.Closed)) // the caller may hold a lock that done needs
		return
	}
	from := &delivery{done: done}
	s.topics.outstanding += len(batch)
	var t *topic
	for _, m := range batch {
		if t == nil || t.name != m.Topic {
			t = s.topics.get(m.Topic)
		}
		s.topics.add(t, item{m, from})
	}
}

// Probe implements sink.Sink: a broker with topics in use answers a heartbeat, or any broker while no topic is in use.
func (s *Sink) Probe(ctx context.Context) error {
	err := s.brokers.probe(ctx)
	if err != nil {
		s.topics.want() // the brokers may have moved
	}
	return err
}

// Reachable implements sink.CommittedReader.
func (s *Sink) Reachable(ctx context.Context) error { return s.brokers.reachable(ctx) }

// Close stops intake and waits for results until ctx ends; then what was sent comes to ClassUnknown, and what was not to
// ClassOutage. It may take up to three seconds more when a broker is frozen, the limit of a write, and six for each name server
// that is frozen while the library asks for a new topic, a constant of it. The error says how many messages were left.
//
// Order: intake; results; waits for answers, which ends the workers and with them what queues suspects and probes; the library.
func (s *Sink) Close(ctx context.Context) error {
	if !s.topics.close() {
		return errors.New("rocketmq: the sink is closed already")
	}
	var left error
	select {
	case <-s.topics.empty:
	case <-ctx.Done():
		s.topics.mu.Lock()
		left = fmt.Errorf("rocketmq: %d messages had no result when the sink was closed", s.topics.outstanding)
		s.topics.mu.Unlock()
	}
	s.cancel() // ends each wait for an answer; a blocked write ends with its own limit
	s.routes.Wait()
	s.workers.Wait()
	s.alone.senders.Wait()
	s.brokers.probes.Wait()
	err := s.producer.close() // not earlier: sends read its flags without a lock
	leaveGlobals(s.log)
	return errors.Join(left, err)
}
