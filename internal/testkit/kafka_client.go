package testkit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ping succeeds when the broker has registered with its controller, so that topics can be created and written.
func (k *Kafka) ping(ctx context.Context) error {
	return withKafka(k.Addr(), func(admin *kadm.Client, _ *kgo.Client) error {
		brokers, err := admin.ListBrokers(ctx)
		if err == nil && len(brokers) == 0 {
			err = errors.New("the broker has not registered yet")
		}
		return err
	})
}

// metadataAge replaces the client's 5 s, for which a topic that was just created could stay unknown.
const metadataAge = 100 * time.Millisecond

// withKafka runs f with a client that is closed afterwards.
func withKafka(addr string, f func(*kadm.Client, *kgo.Client) error, opts ...kgo.Opt) error {
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.MetadataMinAge(metadataAge))...)
	if err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	defer client.Close()
	return f(kadm.NewClient(client), client)
}

// CreateTopic makes a topic and returns when it can be written. configs are topic settings such as max.message.bytes; nil
// means the broker's.
func (k *Kafka) CreateTopic(ctx context.Context, name string, partitions int, configs map[string]string) error {
	return CreateKafkaTopic(ctx, k.Addr(), name, partitions, configs)
}

// CreateKafkaTopic is Kafka.CreateTopic for a broker at an address.
func CreateKafkaTopic(ctx context.Context, addr, name string, partitions int, configs map[string]string) error {
	settings := map[string]*string{}
	for key, value := range configs {
		settings[key] = &value
	}
	return withKafka(addr, func(admin *kadm.Client, _ *kgo.Client) error {
		if _, err := admin.CreateTopic(ctx, int32(partitions), -1, settings, name); err != nil {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
		for {
			topics, err := admin.ListTopics(ctx, name)
			if err == nil && len(topics[name].Partitions) == partitions && topics[name].Err == nil {
				return nil
			}
			if err := pause(ctx); err != nil {
				return fmt.Errorf("create topic %s: it does not appear: %w", name, err)
			}
		}
	})
}

// DeleteKafkaTopic removes a topic from the broker at an address.
func DeleteKafkaTopic(ctx context.Context, addr, name string) error {
	return withKafka(addr, func(admin *kadm.Client, _ *kgo.Client) error {
		if _, err := admin.DeleteTopic(ctx, name); err != nil {
			return fmt.Errorf("delete topic %s: %w", name, err)
		}
		return nil
	})
}

// ReadKafkaTopic returns all records that the topic held at the time of the call, by partition and then by offset.
// addr is a plain listener. Records of aborted transactions are left out.
func ReadKafkaTopic(ctx context.Context, addr, topic string) ([]*kgo.Record, error) {
	var records []*kgo.Record
	err := withKafka(addr, func(admin *kadm.Client, client *kgo.Client) error {
		starts, err := admin.ListStartOffsets(ctx, topic)
		if err != nil {
			return err
		}
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		if err := errors.Join(starts.Error(), ends.Error()); err != nil {
			return err
		}
		byPartition, err := fetchRange(ctx, client, topic, starts[topic], ends[topic])
		for p := range int32(len(byPartition)) {
			records = append(records, byPartition[p]...)
		}
		return err
	}, kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	return records, nil
}

// fetchRange reads each partition from its start to its end. Control records mark how far a partition has been read, and
// are dropped.
func fetchRange(ctx context.Context, client *kgo.Client, topic string, starts, ends map[int32]kadm.ListedOffset) (map[int32][]*kgo.Record, error) {
	found := map[int32][]*kgo.Record{}
	open := map[int32]int64{}
	from := map[int32]kgo.Offset{}
	for p, end := range ends {
		found[p] = nil
		if end.Offset > starts[p].Offset {
			open[p] = end.Offset
			from[p] = kgo.NewOffset().At(starts[p].Offset)
		}
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	for len(open) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for r := range fetches.RecordsAll() {
			end, ok := open[r.Partition]
			if !ok || r.Offset >= end {
				continue
			}
			if !r.Attrs.IsControl() {
				found[r.Partition] = append(found[r.Partition], r)
			}
			if r.Offset == end-1 {
				delete(open, r.Partition)
			}
		}
	}
	return found, nil
}
