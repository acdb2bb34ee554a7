package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// probePause is the time between two probes of a broker that does not answer.
const probePause = 500 * time.Millisecond

// broker is one master. While it is away nothing is handed to the library for it: the library would hold a global lock
// while it dials, and the caller for three seconds (failures B03, B13).
type broker struct {
	name  string
	addr  atomic.Pointer[string]
	fault atomic.Pointer[error] // why it is away; nil when it answered last
	heard atomic.Int64          // when it last answered a send, whatever it said; in nanoseconds
}

// hear records that the broker answered a send.
func (b *broker) hear() { b.heard.Store(time.Now().UnixNano()) }

// heardSince tells whether the broker has answered a send since a moment.
func (b *broker) heardSince(moment time.Time) bool { return b.heard.Load() > moment.UnixNano() }

// away returns why the broker gets no messages at present, nil when it does.
func (b *broker) away() error {
	if fault := b.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// othersWork tells whether a broker beside this one is in use and not away.
func (s *Sink) othersWork(b *broker) bool {
	for _, other := range s.knownBrokers() {
		if other != b && other.away() == nil {
			return true
		}
	}
	return false
}

// silent judges a send that got no answer. While the broker answers the sends of others, the silence is about the message and
// the broker stays in use; else it is the broker's silence. A broker that does not even answer a heartbeat is away.
func (s *Sink) silent(b *broker, sent time.Time, cause error) (message bool) {
	if s.ping(s.ctx, b) != nil {
		s.lost(b, cause)
		return false
	}
	return b.heardSince(sent)
}

// lost marks a broker as away and starts to probe it. Only the first of concurrent calls has an effect.
func (s *Sink) lost(b *broker, cause error) {
	cause = fmt.Errorf("broker %s at %s does not answer: %w", b.name, *b.addr.Load(), cause)
	if !b.fault.CompareAndSwap(nil, &cause) {
		return
	}
	s.log.Warn("broker is away", zap.String("broker", b.name), zap.Error(cause))
	s.metrics.up.WithLabelValues(b.name).Set(0)
	s.tasks.Add(1)
	go s.recover(b)
}

// recover probes a broker until it answers or the sink is closed.
func (s *Sink) recover(b *broker) {
	defer s.tasks.Done()
	for {
		if b.away() == nil || s.ping(s.ctx, b) == nil {
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(probePause):
		}
	}
}

// ping asks a broker for a sign of life and takes it back when there is one.
func (s *Sink) ping(ctx context.Context, b *broker) error {
	err := s.remote.ping(ctx, *b.addr.Load(), s.instance+"-probe", s.cfg.Group)
	if err == nil && b.fault.Swap(nil) != nil {
		s.log.Info("broker is back", zap.String("broker", b.name), zap.String("address", *b.addr.Load()))
		s.metrics.up.WithLabelValues(b.name).Set(1)
	}
	return err
}

// Probe is nil when a broker that has topics in use, or any broker as long as no topic is in use, answers a heartbeat.
func (s *Sink) Probe(ctx context.Context) error {
	brokers := s.knownBrokers()
	if len(brokers) == 0 {
		found, err := s.remote.brokers(ctx)
		if err != nil {
			return fmt.Errorf("rocketmq: no name server answers: %w", err)
		}
		if len(found) == 0 {
			return errors.New("rocketmq: no broker is registered with the name servers")
		}
		for name, addr := range found {
			b := &broker{name: name}
			b.addr.Store(&addr)
			brokers = append(brokers, b)
		}
	}
	ctx, cancel := context.WithCancel(ctx) // the first answer is enough
	defer cancel()
	answers := make(chan error, len(brokers))
	for _, b := range brokers {
		go func() { answers <- s.ping(ctx, b) }()
	}
	var failures []error
	for range brokers {
		err := <-answers
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	s.wantRoutes() // perhaps the brokers have moved
	return fmt.Errorf("rocketmq: no broker answers: %w", errors.Join(failures...))
}

func (s *Sink) knownBrokers() []*broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*broker, 0, len(s.brokers))
	for _, b := range s.brokers {
		all = append(all, b)
	}
	return all
}
