package rocketmq

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

const (
	routeRefresh  = 15 * time.Second
	routeMemory   = 500 * time.Millisecond // how long a failed look-up is used for the messages that follow
	topicMemory   = time.Minute            // how long a topic without a route is remembered
	queuePatience = 5 * time.Minute
)

// topic is the sink's state of one topic. queues.mu guards it.
type topic struct {
	name   string
	queues []*queue // in use, sorted by broker and number; nil while the topic cannot be sent to
	// next replaces queues once nothing of the old list is outstanding, so that the messages of a key that moves to another queue
	// keep their order.
	next        []*queue
	waiting     []item // without a queue: the route is looked up, or next waits
	outstanding int    // messages with a queue that no worker has returned
	shrunk      time.Time

	asked time.Time // the last look-up
	fault outbox.Outcome
	stale bool // look up again soon

	last, run int // of spread: the index of the queue in use, and the number of consecutive messages it got
}

// topics chooses the queue of each message, and keeps the routes.
type topics struct {
	*queues
	remote   *remoting.Client
	brokers  *brokers
	log      *zap.Logger
	changes  prometheus.Counter
	patience time.Duration // with lost queues
	wanted   chan struct{} // gets a token when a topic is to be looked up
	byName   map[string]*topic
}

// get returns the state of a topic and creates it when there is none. Called with the lock held.
func (s *topics) get(name string) *topic {
	t := s.byName[name]
	if t == nil {
		t = &topic{name: name}
		s.byName[name] = t
	}
	return t
}

// add puts a message into its queue or the waiting list. Called with the lock held.
func (s *topics) add(t *topic, it item) {
	if t.queues == nil || t.next != nil {
		t.waiting = append(t.waiting, it)
		if t.queues == nil {
			s.want()
		}
		return
	}
	s.enqueue(t.pick(it.message), it)
}

// release returns a queue after a batch. answered is the number of its messages with a result (the others are sent alone). Other
// ready queues come first.
func (s *topics) release(q *queue, batch []item, answered int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(batch)
	if q.spare == nil {
		clear(batch)
		q.spare = batch[:0]
	}
	q.topic.outstanding -= n
	if len(q.pending) > 0 {
		s.ready = append(s.ready, q)
	} else {
		q.busy = false
		s.adopt(q.topic)
	}
	s.settled(answered)
}

// pick chooses the queue: the row's own choice, else by the sharding key, else by spread.
func (t *topic) pick(m *outbox.Message) *queue {
	switch n := len(t.queues); {
	case m.Partition >= 0:
		return t.queues[int(m.Partition)%n] // publish refuses it when this queue has another number
	case m.ShardingKey != "":
		return t.queues[hash(m.ShardingKey)%uint32(n)]
	}
	return t.spread()
}

// spread chooses for messages without a key. It stays with a queue while a request is in flight there, so that messages that
// arrive meanwhile form one batch. It moves on when the queue is idle, after a full batch, and when its broker is away.
func (t *topic) spread() *queue {
	q := t.queues[t.last]
	if q.busy && t.run < maxBatchMessages && q.broker.Away() == nil {
		t.run++
		return q
	}
	t.run = 1
	for range t.queues {
		t.last = (t.last + 1) % len(t.queues)
		if t.queues[t.last].broker.Away() == nil {
			break
		}
	}
	return t.queues[t.last]
}

// hash is FNV-1a with 32 bits, as in the Go client's own hash selector.
func hash(key string) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h
}

// keep looks up the topics with waiting messages, and all topics periodically, until the context ends.
func (s *topics) keep(ctx context.Context) {
	tick := time.NewTicker(routeRefresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.abandon()
			return
		case <-tick.C:
			s.refresh(ctx, true)
		case <-s.wanted:
			s.refresh(ctx, false)
		}
	}
}

// want wakes keep.
func (s *topics) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// lookAgain requests a new look-up of a topic.
func (s *topics) lookAgain(t *topic) {
	s.mu.Lock()
	t.stale = true
	s.mu.Unlock()
	s.want()
}

// refresh looks topics up; after a failure of the name servers it uses that result for the others too.
func (s *topics) refresh(ctx context.Context, all bool) {
	var silence outbox.Outcome
	for _, t := range s.due(all) {
		s.mu.Lock()
		fault, asked := t.fault, t.asked
		remembered := fault.Class != outbox.ClassNone && time.Since(asked) < routeMemory && !t.stale
		s.mu.Unlock()
		var found *route
		switch {
		case remembered:
			s.learn(t, nil, fault, asked)
			continue
		case silence.Class != outbox.ClassNone && topicFault(t.name) == "":
			fault = silence
		default:
			if found, fault = locate(ctx, s.remote, t.name); fault.Class == outbox.ClassOutage {
				silence = fault
			}
		}
		if found != nil {
			s.brokers.meet(found.brokers)
		}
		s.learn(t, found, fault, time.Now())
	}
}

// due lists the topics to look up and forgets unused ones.
func (s *topics) due(all bool) []*topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*topic
	for _, t := range s.byName {
		idle := t.queues == nil && len(t.waiting) == 0 && t.outstanding == 0
		switch {
		case idle && time.Since(t.asked) > topicMemory:
			delete(s.byName, t.name)
		case all && !idle, t.stale, t.queues == nil && len(t.waiting) > 0:
			list = append(list, t)
		}
	}
	return list
}

// learn applies the result of a look-up, new or remembered. A known topic stays unchanged while no name server answers.
func (s *topics) learn(t *topic, found *route, fault outbox.Outcome, asked time.Time) {
	s.mu.Lock()
	t.asked, t.fault, t.stale = asked, fault, false
	switch {
	case found != nil:
		s.propose(t, found)
	case fault.Class != outbox.ClassOutage:
		t.queues, t.next = nil, nil
	}
	var answered []item
	if t.queues == nil && t.next == nil {
		answered, t.waiting = t.waiting, nil
	}
	s.mu.Unlock()
	s.answer(answered, fault)
}

// propose compares a queue list with the one in use. A key's queue is its hash over the list, so every change moves keys and may
// break their order once (failure B17): a list that only grew is used at once, one that lost queues after five minutes, in which
// a broker usually returns. Until then the keys of lost queues get an outage.
func (s *topics) propose(t *topic, found *route) {
	had, has := addresses(t.queues), found.queues
	if t.next != nil {
		had = addresses(t.next)
	}
	if slices.Equal(had, has) {
		t.shrunk = time.Time{}
		return
	}
	if lost := slices.ContainsFunc(had, func(a address) bool { return !slices.Contains(has, a) }); lost {
		if t.shrunk.IsZero() {
			t.shrunk = time.Now()
			s.log.Warn("topic has lost write queues: messages of their keys wait until the queues are back, at most five minutes",
				zap.String("topic", t.name), zap.Int("before", len(had)), zap.Int("now", len(has)), zap.Duration("patience", s.patience))
		}
		if time.Since(t.shrunk) < s.patience {
			return
		}
	}
	if len(had) > 0 {
		s.changes.Inc()
		s.log.Warn("topic has other write queues than before: keys move between queues, consumers may see them out of order once",
			zap.String("topic", t.name), zap.Int("before", len(had)), zap.Int("now", len(has)))
	}
	t.shrunk = time.Time{}
	t.next = make([]*queue, len(has))
	for i, a := range has {
		t.next[i] = newQueue(t, s.brokers.get(a.broker), i, a.id)
	}
	s.adopt(t)
}

// adopt starts to use the next list when nothing of the old one is outstanding. Called with the lock held.
func (s *topics) adopt(t *topic) {
	if t.next == nil || t.outstanding > 0 {
		return
	}
	t.queues, t.next, t.last, t.run = t.next, nil, 0, 0
	waiting := t.waiting
	t.waiting = nil
	for _, it := range waiting {
		s.add(t, it)
	}
}

// abandon reports the messages that wait for a route when the sink ends.
func (s *topics) abandon() {
	s.mu.Lock()
	var left []item
	for _, t := range s.byName {
		left = append(left, t.waiting...)
		t.waiting = nil
	}
	s.mu.Unlock()
	s.answer(left, unsent)
}

func addresses(queues []*queue) []address {
	list := make([]address, len(queues))
	for i, q := range queues {
		list[i] = address{q.broker.name, q.id}
	}
	return list
}
