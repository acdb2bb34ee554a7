package rocketmq

import (
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"go.uber.org/zap"
)

const (
	routeRefresh  = 15 * time.Second
	routeMemory   = 500 * time.Millisecond // how long a failed look-up is used for the messages that follow
	topicMemory   = time.Minute            // how long a topic without a route is remembered
	queuePatience = 5 * time.Minute
)

// topic is the sink's state of one topic. Sink.mu guards it.
type topic struct {
	name   string
	queues []*queue // in use, sorted by broker and number; nil while the topic cannot be sent to
	// next replaces queues once nothing of the old list is outstanding, so that the messages of a key that moves to another queue
	// keep their order.
	next        []*queue
	waiting     []item // without a queue: the route is looked up, or next waits
	outstanding int    // messages with a queue and without a result
	shrunk      time.Time

	asked time.Time // the last look-up
	fault outbox.Outcome
	stale bool // look up again soon

	turn, run int // of spread: the queue in use, and the number of consecutive messages it got
}

// add puts a message into its queue or the waiting list. Called with the lock held.
func (s *Sink) add(t *topic, it item) {
	if t.queues == nil || t.next != nil {
		t.waiting = append(t.waiting, it)
		if t.queues == nil {
			s.wantRoutes()
		}
		return
	}
	q := t.pick(it.message, s.cfg.MaxBatchMessages)
	if s.isolated.knows(it.message.Identity) {
		s.sendAlone(suspect{it, q})
		return
	}
	s.enqueue(q, it)
}

// pick chooses the queue: the row's own choice, else by the sharding key, else by spread.
func (t *topic) pick(m *outbox.Message, limit int) *queue {
	switch n := len(t.queues); {
	case m.Partition >= 0:
		return t.queues[int(m.Partition)%n] // publish refuses it when this queue has another number
	case m.ShardingKey != "":
		return t.queues[hash(m.ShardingKey)%uint32(n)]
	}
	return t.spread(limit)
}

// spread chooses for messages without a key. It stays with a queue while a request is in flight there, so that messages that
// arrive meanwhile form one batch. It moves on when the queue is idle, after a full batch, and when its broker is away.
func (t *topic) spread(limit int) *queue {
	q := t.queues[t.turn]
	if q.busy && t.run < limit && q.broker.Away() == nil {
		t.run++
		return q
	}
	t.run = 1
	for range t.queues {
		t.turn = (t.turn + 1) % len(t.queues)
		if t.queues[t.turn].broker.Away() == nil {
			break
		}
	}
	return t.queues[t.turn]
}

// hash is FNV-1a with 32 bits, as in the Go client's own hash selector.
func hash(key string) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h
}

// keepRoutes looks up the topics with waiting messages, and all topics periodically, until the sink ends.
func (s *Sink) keepRoutes() {
	defer s.tasks.Done()
	tick := time.NewTicker(routeRefresh)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			s.abandon()
			return
		case <-tick.C:
			s.refresh(true)
		case <-s.routes:
			s.refresh(false)
		}
	}
}

// wantRoutes wakes keepRoutes.
func (s *Sink) wantRoutes() {
	select {
	case s.routes <- struct{}{}:
	default:
	}
}

// refresh looks topics up; after a failure of the name servers it uses that result for the others too.
func (s *Sink) refresh(all bool) {
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
			if found, fault = s.remote.locate(s.ctx, t.name); fault.Class == outbox.ClassOutage {
				silence = fault
			}
		}
		s.meet(found)
		s.learn(t, found, fault, time.Now())
	}
}

// due lists the topics to look up and forgets unused ones.
func (s *Sink) due(all bool) []*topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*topic
	for _, t := range s.topics {
		idle := t.queues == nil && len(t.waiting) == 0 && t.outstanding == 0
		switch {
		case idle && time.Since(t.asked) > topicMemory:
			delete(s.topics, t.name)
		case all && !idle, t.stale, t.queues == nil && len(t.waiting) > 0:
			list = append(list, t)
		}
	}
	return list
}

// meet registers new brokers, so that the library never has to detect, under a lock that all sends share, that one is
// unreachable.
func (s *Sink) meet(r *route) {
	if r == nil {
		return
	}
	var wg sync.WaitGroup
	for name, addr := range r.brokers {
		s.mu.Lock()
		b := s.brokers[name]
		known := b != nil
		if !known {
			b = newBroker(s.health, name)
			s.metrics.up.WithLabelValues(name).Set(1)
			s.brokers[name] = b
		}
		moved := known && *b.addr.Load() != addr
		b.addr.Store(&addr)
		s.mu.Unlock()
		if moved {
			s.log.Info("broker has another address", zap.String("broker", name), zap.String("address", addr))
		}
		if !known || moved {
			wg.Go(func() {
				if err := s.ping(s.ctx, b); err != nil {
					s.lost(b, err)
				}
			})
		}
	}
	wg.Wait()
}

// learn applies the result of a look-up, new or remembered. A known topic stays unchanged while no name server answers.
func (s *Sink) learn(t *topic, found *route, fault outbox.Outcome, asked time.Time) {
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
func (s *Sink) propose(t *topic, found *route) {
	had, has := places(t.queues), found.queues
	if t.next != nil {
		had = places(t.next)
	}
	if slices.Equal(had, has) {
		t.shrunk = time.Time{}
		return
	}
	if lost := slices.ContainsFunc(had, func(p place) bool { return !slices.Contains(has, p) }); lost {
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
		s.metrics.changes.Inc()
		s.log.Warn("topic has other write queues than before: keys move between queues, consumers may see them out of order once",
			zap.String("topic", t.name), zap.Int("before", len(had)), zap.Int("now", len(has)))
	}
	t.shrunk = time.Time{}
	t.next = make([]*queue, len(has))
	for i, p := range has {
		t.next[i] = newQueue(t, s.brokers[p.broker], i, p.id)
	}
	s.adopt(t)
}

// adopt starts to use the next list when nothing of the old one is outstanding. Called with the lock held.
func (s *Sink) adopt(t *topic) {
	if t.next == nil || t.outstanding > 0 {
		return
	}
	t.queues, t.next, t.turn, t.run = t.next, nil, 0, 0
	waiting := t.waiting
	t.waiting = nil
	for _, it := range waiting {
		s.add(t, it)
	}
}

// abandon reports the messages that wait for a route when the sink ends.
func (s *Sink) abandon() {
	s.mu.Lock()
	var left []item
	for _, t := range s.topics {
		left = append(left, t.waiting...)
		t.waiting = nil
	}
	s.mu.Unlock()
	s.answer(left, unsent)
}

func places(queues []*queue) []place {
	list := make([]place, len(queues))
	for i, q := range queues {
		list[i] = place{q.broker.name, q.id}
	}
	return list
}
