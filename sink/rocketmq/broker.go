package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

const (
	probePause = 500 * time.Millisecond // between two probes of a broker that does not answer
	askLimit   = time.Second            // of a heartbeat, and of a question to one name server
)

// broker is one master. While it is away the library gets no messages for it: the library would hold a global lock while it
// dials, and block the caller for three seconds (failures B03, B13).
type broker struct {
	*sink.Part
	name string
	addr atomic.Pointer[string]
}

// brokers are the masters of the topics in use. One goroutine probes each that is away.
type brokers struct {
	remote          *remoting.Client
	instance, group string
	log             *zap.Logger
	up              *prometheus.GaugeVec
	health          *sink.Health
	ctx             context.Context // of the probes
	probes          sync.WaitGroup

	mu    sync.Mutex
	known map[string]*broker
}

// get returns a broker that was met.
func (s *brokers) get(name string) *broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name]
}

// meet registers new brokers, so that the library never has to detect, under a lock that all sends share, that one is
// unreachable.
func (s *brokers) meet(masters map[string]string) {
	var pings sync.WaitGroup
	for name, addr := range masters {
		s.mu.Lock()
		b := s.known[name]
		known := b != nil
		if !known {
			b = newBroker(s.health, name)
			s.up.WithLabelValues(name).Set(1)
			s.known[name] = b
		}
		moved := known && *b.addr.Load() != addr
		b.addr.Store(&addr)
		s.mu.Unlock()
		if moved {
			s.log.Info("broker has another address", zap.String("broker", name), zap.String("address", addr))
		}
		if !known || moved {
			pings.Go(func() {
				if err := s.ping(s.ctx, b); err != nil {
					s.lost(b, err)
				}
			})
		}
	}
	pings.Wait()
}

// silent judges a send without an answer. While the broker answers the sends of others, the message is the cause and the broker
// stays in use; else the broker is. A broker that does not even answer a heartbeat is away.
func (s *brokers) silent(b *broker, sent time.Time, cause error) (message bool) {
	if s.ping(s.ctx, b) != nil {
		s.lost(b, cause)
		return false
	}
	return b.AnsweredSince(sent)
}

// lost marks a broker as away and starts probes. Only the first of concurrent calls has an effect.
func (s *brokers) lost(b *broker, cause error) {
	cause = fmt.Errorf("broker %s at %s does not answer: %w", b.name, *b.addr.Load(), cause)
	if !b.Lost(cause) {
		return
	}
	s.log.Warn("broker is away", zap.String("broker", b.name), zap.Error(cause))
	s.up.WithLabelValues(b.name).Set(0)
	s.probes.Go(func() { s.recover(b) })
}

// recover probes a broker until it answers or the sink is closed.
func (s *brokers) recover(b *broker) {
	for b.Away() != nil && s.ping(s.ctx, b) != nil && outbox.Wait(s.ctx, probePause, nil) {
	}
}

// ping sends a heartbeat to a broker and marks it as available when it answers.
func (s *brokers) ping(ctx context.Context, b *broker) error {
	_, err := s.remote.Release(ctx, askLimit, *b.addr.Load(), s.instance+"-probe", s.group)
	if err == nil && b.Back() {
		s.log.Info("broker is back", zap.String("broker", b.name), zap.String("address", *b.addr.Load()))
		s.up.WithLabelValues(b.name).Set(1)
	}
	return err
}

// probe returns nil when a broker with topics in use answers a heartbeat, or any broker while no topic is in use.
func (s *brokers) probe(ctx context.Context) error {
	s.mu.Lock()
	asked := slices.Collect(maps.Values(s.known))
	s.mu.Unlock()
	if len(asked) == 0 {
		return s.reachable(ctx)
	}
	return s.anyAnswers(ctx, asked)
}

// reachable returns nil when any broker that the name servers know answers.
func (s *brokers) reachable(ctx context.Context) error {
	found, err := s.remote.Masters(ctx)
	if err != nil {
		return fmt.Errorf("rocketmq: no name server answers: %w", err)
	}
	if len(found) == 0 {
		return errors.New("rocketmq: no broker is registered with the name servers")
	}
	var asked []*broker
	for name, addr := range found {
		b := newBroker(sink.NewHealth(0), name) // one of its own: the state of a broker without topics in use does not matter to the others
		b.addr.Store(&addr)
		asked = append(asked, b)
	}
	return s.anyAnswers(ctx, asked)
}

// anyAnswers returns nil when one of the brokers answers.
func (s *brokers) anyAnswers(ctx context.Context, asked []*broker) error {
	ctx, cancel := context.WithCancel(ctx) // the first answer is enough
	defer cancel()
	answers := make(chan error, len(asked))
	for _, b := range asked {
		go func() { answers <- s.ping(ctx, b) }()
	}
	var failures []error
	for range asked {
		err := <-answers
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	return fmt.Errorf("rocketmq: no broker answers: %w", errors.Join(failures...))
}

func newBroker(h *sink.Health, name string) *broker { return &broker{Part: h.Part(name), name: name} }
