package demo

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// kafka is the consumer's side of a Kafka broker, and all of an external one.
type kafka struct {
	address string // for the relay
	topic   string
	client  *kgo.Client

	mu    sync.Mutex
	moved chan struct{} // closed and replaced when next has changed
	next  map[int32]int64
}

// newKafka creates the consumer. It does not connect yet.
func newKafka(address, topic string, opts ...kgo.Opt) (*kafka, error) {
	client, err := kgo.NewClient(append(opts,
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(100*time.Millisecond), // the topic is new
		kgo.FetchMaxWait(100*time.Millisecond),   // partitions that are found late wait for the running fetch
	)...)
	if err != nil {
		return nil, fmt.Errorf("kafka consumer: %w", err)
	}
	return &kafka{address: address, topic: topic, client: client, moved: make(chan struct{}), next: map[int32]int64{}}, nil
}

// givenKafka uses an external broker and creates the demo's topic there.
func givenKafka(ctx context.Context, address string) (*kafka, error) {
	k, err := newKafka(address, uniqueTopic(), kgo.SeedBrokers(address))
	if err != nil {
		return nil, err
	}
	const asTheBrokerSays = -1
	if _, err := kadm.NewClient(k.client).CreateTopic(ctx, partitions, asTheBrokerSays, nil, k.topic); err != nil {
		k.client.Close()
		return nil, fmt.Errorf("create topic %s on the Kafka broker %s: %w", k.topic, address, err)
	}
	return k, nil
}

// Title implements broker.
func (k *kafka) Title() string { return "Kafka" }

// Address implements broker.
func (k *kafka) Address() string { return k.address }

// Sink implements broker.
func (k *kafka) Sink() string { return fmt.Sprintf("{kafka: {brokers: [%q]}}", k.address) }

// Topic implements broker.
func (k *kafka) Topic() string { return k.topic }

// Stop implements broker.
func (k *kafka) Stop() error { return errNotOurs }

// Start implements broker.
func (k *kafka) Start() error { return errNotOurs }

// Follow implements broker.
func (k *kafka) Follow(ctx context.Context, deliver func([]arrival)) error {
	for {
		fetches := k.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		// The client does not return errors that it can retry.
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume topic %s: %w", k.topic, err)
		}
		now := time.Now()
		var arrivals []arrival
		for r := range fetches.RecordsAll() {
			one := arrival{Record: relay.FromKafka(r), at: now}
			if one.MessageID == "" { // it counts as never committed
				one.MessageID = fmt.Sprintf("without message_id at partition %d offset %d", r.Partition, r.Offset)
			}
			arrivals = append(arrivals, one)
		}
		deliver(arrivals)
		k.advance(fetches)
	}
}

func (k *kafka) advance(fetches kgo.Fetches) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := range fetches.RecordsAll() {
		k.next[r.Partition] = r.Offset + 1
	}
	close(k.moved)
	k.moved = make(chan struct{})
}

// CatchUp implements broker.
func (k *kafka) CatchUp(ctx context.Context) error {
	ends, err := kadm.NewClient(k.client).ListEndOffsets(ctx, k.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("ask for the end of topic %s: %w", k.topic, err)
	}
	for {
		behind, moved := k.behind(ends)
		if behind == 0 {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("consume topic %s to its end: %d records behind: %w", k.topic, behind, ctx.Err())
		}
	}
}

// behind counts the records between what was delivered and ends; the channel closes at the next progress.
func (k *kafka) behind(ends kadm.ListedOffsets) (int64, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var records int64
	ends.Each(func(end kadm.ListedOffset) {
		// The last offsets of a topic may hold no records (control records of transactions), but not in this topic.
		records += max(0, end.Offset-k.next[end.Partition])
	})
	return records, k.moved
}

// Close implements broker.
func (k *kafka) Close(ctx context.Context) error {
	defer k.client.Close()
	answers, err := kadm.NewClient(k.client).DeleteTopics(ctx, k.topic)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", k.topic, err)
	}
	return nil
}

// embeddedKafka is a Kafka in this process. The relay reaches it through a proxy. The demo's consumer does not, so it receives
// records at once also while the broker is away for the relay.
type embeddedKafka struct {
	*kafka
	cluster *kfake.Cluster
	proxy   *testkit.Proxy
	done    chan struct{}
	expirer sync.WaitGroup
}

// maxTopicBytes bounds what a partition keeps in memory.
const maxTopicBytes = 64 << 20

// frontAddress is a listener that reports the proxy's address as its own, so that clients connect there.
type frontAddress struct {
	net.Listener
	front net.Addr
}

// Addr implements net.Listener.
func (l frontAddress) Addr() net.Addr { return l.front }

func startEmbeddedKafka() (_ *embeddedKafka, err error) {
	e := &embeddedKafka{done: make(chan struct{})}
	defer func() {
		if err != nil {
			e.end()
		}
	}()
	if e.proxy, err = testkit.StartProxy(""); err != nil {
		return nil, err
	}
	front, err := net.ResolveTCPAddr("tcp", e.proxy.Addr())
	if err != nil {
		return nil, fmt.Errorf("address of the embedded Kafka: %w", err)
	}
	var own string
	listen := func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		own = l.Addr().String()
		return frontAddress{Listener: l, front: front}, nil
	}
	if e.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(listen)); err != nil {
		return nil, fmt.Errorf("start the embedded Kafka: %w", err)
	}
	e.proxy.SetTarget(own)
	const topic = "orders"
	direct := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, own)
	}
	if e.kafka, err = newKafka(e.proxy.Addr(), topic, kgo.SeedBrokers(own), kgo.Dialer(direct)); err != nil {
		return nil, err
	}
	limit := map[string]*string{"retention.bytes": kadm.StringPtr(fmt.Sprint(maxTopicBytes))}
	if _, err := kadm.NewClient(e.client).CreateTopic(context.Background(), partitions, 1, limit, topic); err != nil {
		return nil, fmt.Errorf("create topic %s: %w", topic, err)
	}
	e.expirer.Go(e.expire)
	return e, nil
}

// Title implements broker.
func (e *embeddedKafka) Title() string { return "Kafka, embedded in this process" }

// Stop implements broker.
func (e *embeddedKafka) Stop() error {
	if err := e.proxy.Refuse(true); err != nil {
		return fmt.Errorf("close the broker's port: %w", err)
	}
	e.proxy.Cut()
	return nil
}

// Start implements broker.
func (e *embeddedKafka) Start() error { return e.proxy.Refuse(false) }

// expire removes old records until done is closed.
func (e *embeddedKafka) expire() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.cluster.ApplyRetention()
		case <-e.done:
			return
		}
	}
}

// Close implements broker.
func (e *embeddedKafka) Close(context.Context) error {
	e.end()
	return nil
}

func (e *embeddedKafka) end() {
	close(e.done)
	e.expirer.Wait()
	if e.kafka != nil {
		e.client.Close()
	}
	if e.cluster != nil {
		e.cluster.Close()
	}
	if e.proxy != nil {
		e.proxy.Close()
	}
}
