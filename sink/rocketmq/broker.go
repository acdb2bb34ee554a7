package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
	"go.uber.org/zap"
)

// probePause is the time between two probes of a broker that does not answer.
const probePause = 500 * time.Millisecond

// broker is one master. While it is away the library gets no messages for it: the library would hold a global lock while it
// dials, and block the caller for three seconds (failures B03, B13).
type broker struct {
	*sink.Part
	name string
	addr atomic.Pointer[string]
}

// silent judges a send without an answer. While the broker answers the sends of others, the message is the cause and the broker
// stays in use; else the broker is. A broker that does not even answer a heartbeat is away.
func (s *Sink) silent(b *broker, sent time.Time, cause error) (message bool) {
	if s.ping(s.ctx, b) != nil {
		s.lost(b, cause)
		return false
	}
	return b.AnsweredSince(sent)
}

// lost marks a broker as away and starts probes. Only the first of concurrent calls has an effect.
func (s *Sink) lost(b *broker, cause error) {
	cause = fmt.Errorf("broker %s at %s does not answer: %w", b.name, *b.addr.Load(), cause)
	if !b.Lost(cause) {
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
		if b.Away() == nil || s.ping(s.ctx, b) == nil {
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(probePause):
		}
	}
}

// ping sends a heartbeat to a broker and marks it as available when it answers.
func (s *Sink) ping(ctx context.Context, b *broker) error {
	err := s.remote.ping(ctx, *b.addr.Load(), s.instance+"-probe", s.cfg.Group)
	if err == nil && b.Back() {
		s.log.Info("broker is back", zap.String("broker", b.name), zap.String("address", *b.addr.Load()))
		s.metrics.up.WithLabelValues(b.name).Set(1)
	}
	return err
}

// Probe returns nil when a broker with topics in use answers a heartbeat, or any broker while no topic is in use.
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
			b := newBroker(sink.NewHealth(0), name) // without topics in use: its state does not matter to the others
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
	s.wantRoutes() // the brokers may have moved
	return fmt.Errorf("rocketmq: no broker answers: %w", errors.Join(failures...))
}

func newBroker(h *sink.Health, name string) *broker { return &broker{Part: h.Part(name), name: name} }

func (s *Sink) knownBrokers() []*broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*broker, 0, len(s.brokers))
	for _, b := range s.brokers {
		all = append(all, b)
	}
	return all
}
