package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// broker is where the relay publishes to, with the demo's own consumer.
type broker struct {
	title, address string // for people
	sink           string // the sink section of the relay's configuration, on one line
	topic          string

	// stop and start take the broker away and back; nil for an external broker, which the demo leaves alone.
	stop  func()
	start func() error
	// follow delivers all records of the topic, from the first on, until ctx ends, which is not an error.
	follow func(ctx context.Context, deliver func([]relay.Record)) error
	// read returns all records of the topic.
	read func(ctx context.Context) ([]relay.Record, error)
	// close removes the topic and stops what the demo has started.
	close func(ctx context.Context) error
}

// partitions of the demo's topic.
const partitions = 4

// uniqueTopic returns a topic name for a broker with other users.
func uniqueTopic() string {
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // never fails
	return "canal-outbox-demo-" + hex.EncodeToString(suffix)
}

// openBroker connects to the broker of the options, or starts a Kafka in this process.
func openBroker(ctx context.Context, opts options) (*broker, error) {
	switch {
	case opts.Kafka != "" && opts.RocketMQ != "":
		return nil, errors.New("a demo has one broker: give --kafka or --rocketmq, not both")
	case opts.Kafka != "":
		return givenKafka(ctx, opts.Kafka)
	case opts.RocketMQ != "":
		return givenRocketMQ(ctx, opts.RocketMQ)
	}
	return embeddedKafka()
}

// kafka is the part that an external and an embedded Kafka share.
func kafka(address, topic string) *broker {
	return &broker{
		title: "Kafka", address: address, topic: topic, sink: "{" + relay.KafkaSink(address) + "}",
		follow: func(ctx context.Context, deliver func([]relay.Record)) error {
			return followKafka(ctx, address, topic, deliver)
		},
		read: func(ctx context.Context) ([]relay.Record, error) { return relay.ReadKafka(ctx, address, topic) },
	}
}

// givenKafka uses an external broker and creates the demo's topic there.
func givenKafka(ctx context.Context, address string) (*broker, error) {
	b := kafka(address, uniqueTopic())
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(address))
	if err != nil {
		return nil, fmt.Errorf("kafka %s: %w", address, err)
	}
	defer admin.Close()
	const asTheBrokerSays = -1
	if _, err := admin.CreateTopic(ctx, partitions, asTheBrokerSays, nil, b.topic); err != nil {
		return nil, fmt.Errorf("create topic %s on the Kafka broker %s: %w", b.topic, address, err)
	}
	b.close = func(ctx context.Context) error { return testkit.DeleteKafkaTopic(ctx, address, b.topic) }
	return b, nil
}

// embeddedKafka starts a Kafka in this process.
func embeddedKafka() (*broker, error) {
	const topic = "orders"
	cluster, err := fakekafka.Start(1, map[string]int{topic: partitions})
	if err != nil {
		return nil, err
	}
	b := kafka(cluster.Addr(), topic)
	b.title, b.stop, b.start = "Kafka, embedded in this process", cluster.Stop, cluster.Start
	b.close = func(context.Context) error { return cluster.Shut() }
	return b, nil
}

// followKafka consumes a topic. The client does not return errors that it can retry, such as a broker that is away.
func followKafka(ctx context.Context, address, topic string, deliver func([]relay.Record)) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(100*time.Millisecond), // the topic is new
		kgo.FetchMaxWait(100*time.Millisecond),   // partitions that are found late wait for the running fetch
	)
	if err != nil {
		return fmt.Errorf("consume topic %s: %w", topic, err)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume topic %s: %w", topic, err)
		}
		now := time.Now()
		var records []relay.Record
		for r := range fetches.RecordsAll() {
			record := relay.FromKafka(r)
			record.Stored = now
			records = append(records, record)
		}
		deliver(records)
	}
}

// givenRocketMQ uses an external RocketMQ and creates the demo's topic there.
func givenRocketMQ(ctx context.Context, nameServer string) (*broker, error) {
	topic := uniqueTopic()
	if err := testkit.CreateRocketMQTopic(ctx, nameServer, topic, partitions); err != nil {
		return nil, err
	}
	b := &broker{
		title: "RocketMQ, read about once a second", address: nameServer, topic: topic, sink: "{" + relay.RocketMQSink(nameServer) + "}",
		read:  func(ctx context.Context) ([]relay.Record, error) { return relay.ReadRocketMQ(ctx, nameServer, topic) },
		close: func(ctx context.Context) error { return testkit.DeleteRocketMQTopic(ctx, nameServer, topic) },
	}
	b.follow = b.followByReading
	return b, nil
}

// position identifies a stored message. Queues of different brokers may have the same number, so the id is part of it.
type position struct {
	partition int
	offset    int64
	id        string
}

// followByReading reads the whole topic periodically, so the pause between reads grows with it. A message counts as arrived at the
// time at which the broker stored it, by the broker's clock.
func (b *broker) followByReading(ctx context.Context, deliver func([]relay.Record)) error {
	seen := map[position]bool{}
	for {
		began := time.Now()
		records, err := b.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		var fresh []relay.Record
		for _, r := range records {
			if at := (position{r.Partition, r.Offset, r.MessageID}); !seen[at] {
				seen[at] = true
				fresh = append(fresh, r)
			}
		}
		deliver(fresh)
		if relay.Pause(ctx, max(time.Second, 3*time.Since(began))) != nil {
			return nil
		}
	}
}
