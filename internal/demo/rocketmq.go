package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// rocketMQ is an external RocketMQ. It is read periodically, and a message counts as arrived at the time at which the broker
// stored it, by the broker's clock.
type rocketMQ struct {
	nameServer string
	topic      string

	mu     sync.Mutex
	seen   map[queuePosition]bool
	rounds int // completed
	moved  chan struct{}
}

// queuePosition identifies a stored message. Queues of different brokers may have the same number, so the id is part of it.
type queuePosition struct {
	queue  int
	offset int64
	id     string
}

func givenRocketMQ(ctx context.Context, nameServer string) (*rocketMQ, error) {
	r := &rocketMQ{nameServer: nameServer, topic: uniqueTopic(), seen: map[queuePosition]bool{}, moved: make(chan struct{})}
	if err := testkit.CreateRocketMQTopic(ctx, nameServer, r.topic, partitions); err != nil {
		return nil, err
	}
	return r, nil
}

// Title implements broker.
func (r *rocketMQ) Title() string { return "RocketMQ, read about once a second" }

// Address implements broker.
func (r *rocketMQ) Address() string { return r.nameServer }

// Sink implements broker.
func (r *rocketMQ) Sink() string {
	return fmt.Sprintf("{rocketmq: {name_servers: [%q]}}", r.nameServer)
}

// Topic implements broker.
func (r *rocketMQ) Topic() string { return r.topic }

// Stop implements broker.
func (r *rocketMQ) Stop() error { return errNotOurs }

// Start implements broker.
func (r *rocketMQ) Start() error { return errNotOurs }

// Follow implements broker. Each read covers the whole topic, so the pause between reads grows with it.
func (r *rocketMQ) Follow(ctx context.Context, deliver func([]arrival)) error {
	for {
		began := time.Now()
		messages, err := testkit.ReadRocketMQTopic(ctx, r.nameServer, r.topic)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		deliver(r.fresh(messages))
		r.completed()
		select {
		case <-time.After(max(time.Second, 3*time.Since(began))):
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *rocketMQ) fresh(messages []testkit.RocketMQMessage) []arrival {
	var arrivals []arrival
	for _, m := range messages {
		at := queuePosition{m.QueueID, m.QueueOffset, m.ID()}
		if r.seen[at] {
			continue
		}
		r.seen[at] = true
		one := arrival{Record: relay.FromRocketMQ(m), at: m.Stored}
		if one.MessageID == "" { // it counts as never committed
			one.MessageID = fmt.Sprintf("without UNIQ_KEY at queue %d offset %d", m.QueueID, m.QueueOffset)
		}
		arrivals = append(arrivals, one)
	}
	return arrivals
}

func (r *rocketMQ) completed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	close(r.moved)
	r.moved = make(chan struct{})
}

func (r *rocketMQ) round() (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rounds, r.moved
}

// CatchUp implements broker: the running read may have passed a queue already, so it waits for the next one.
func (r *rocketMQ) CatchUp(ctx context.Context) error {
	first, moved := r.round()
	for now := first; now < first+2; now, moved = r.round() {
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("consume topic %s to its end: %w", r.topic, ctx.Err())
		}
	}
	return nil
}

// Close implements broker.
func (r *rocketMQ) Close(ctx context.Context) error {
	return testkit.DeleteRocketMQTopic(ctx, r.nameServer, r.topic)
}
