package rocketmq

import (
	"context"
	"sync"

	rmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"go.uber.org/zap"
)

// producers is the library's producer, and its successor when the secret key has changed: the library signs with the key that a producer
// began with.
type producers struct {
	cfg Section
	log *zap.Logger

	mu       sync.RWMutex // read-held during a send: a shutdown writes flags that sends read
	producer rmq.Producer
	key      string
}

func newProducers(cfg Section, instance string, log *zap.Logger) (*producers, error) {
	key := cfg.SecretKey.Get()
	first, err := newProducer(cfg, instance, key, log)
	if err != nil {
		return nil, err
	}
	return &producers{cfg: cfg, log: log, producer: first, key: key}, nil
}

// send sends one request to a broker with the secret key of now, and records whether the broker accepts it.
func (p *producers) send(ctx context.Context, broker string, request *primitive.Message) (*primitive.SendResult, error) {
	if err := p.renew(p.cfg.SecretKey.Get()); err != nil {
		return nil, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	// The result of a failed send must not be printed: its String dereferences nil.
	result, err := p.producer.SendSync(ctx, request)
	switch {
	case err == nil:
		p.cfg.SecretKey.Accepted(broker)
	case classify(err).class == outbox.ClassService:
		p.cfg.SecretKey.Refused(broker, err)
	}
	return result, err
}

// renew puts another producer in place when the key is another one.
func (p *producers) renew(key string) error {
	p.mu.RLock()
	same := key == p.key
	p.mu.RUnlock()
	if same {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == p.key {
		return nil // another worker was faster
	}
	next, err := newProducer(p.cfg, instanceName(), key, p.log)
	if err != nil {
		return err
	}
	old := p.producer
	p.producer, p.key = next, key
	if err := old.Shutdown(); err != nil { // no send uses it any more
		p.log.Warn("the RocketMQ producer with the former secret key did not end cleanly", zap.Error(err))
	}
	return nil
}

// close ends the producer. No send may run or follow.
func (p *producers) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.producer.Shutdown()
}
