package bus

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kafka publishes with one client; each Consume has its own client.
type kafka struct {
	address  string
	producer *kgo.Client
}

func openKafka(address string) (*kafka, error) {
	producer, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return nil, fmt.Errorf("kafka %s: %w", address, err)
	}
	return &kafka{address, producer}, nil
}

// Publish implements Bus.
func (k *kafka) Publish(ctx context.Context, topic, key, body string) error {
	record := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(body)}
	if err := k.producer.ProduceSync(ctx, record).FirstErr(); err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nil
}

// Close implements Bus.
func (k *kafka) Close() { k.producer.Close() }

// Consume implements Bus. The member has a fixed name: a process that is killed and started again under it takes its partitions
// over at once, not when the session of the dead one ends.
func (k *kafka) Consume(ctx context.Context, group string, topics []string, handle Handler) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(k.address), kgo.ConsumerGroup(group), kgo.InstanceID(group+"-1"), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(10*time.Second), kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return fmt.Errorf("kafka %s: group %s: %w", k.address, group, err)
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollRecords(ctx, 100)
		if ctx.Err() != nil {
			return nil
		}
		// The client continues by itself; its errors are for people.
		fetches.EachError(func(topic string, _ int32, err error) { log.Printf("group %s: fetch %s: %v", group, topic, err) })
		for record := range fetches.RecordsAll() {
			if insist(ctx, group, handle, fromKafka(record)) != nil {
				return nil // ctx has ended; what was not committed comes again
			}
		}
		// The next commit includes a failed one; until then a restart brings copies.
		_ = client.CommitUncommittedOffsets(ctx)
		client.AllowRebalance()
	}
}

func fromKafka(r *kgo.Record) Message {
	m := Message{Body: string(r.Value)}
	for _, h := range r.Headers {
		switch h.Key {
		case "message_id":
			m.ID = string(h.Value)
		case "biz_type":
			m.Kind = string(h.Value)
		}
	}
	return m
}
