package kafka

import (
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// partitioner chooses partitions as the Java client does (murmur2 of the key; without a key one partition per batch), but by the
// sharding key where it differs from the record's key, and by the row's own partition if it has one.
type partitioner struct {
	inner  kgo.Partitioner
	log    *zap.Logger
	health *sink.Health
}

func newPartitioner(log *zap.Logger, health *sink.Health) kgo.Partitioner {
	return partitioner{kgo.StickyKeyPartitioner(nil), log, health}
}

// ForTopic implements kgo.Partitioner.
func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{TopicPartitioner: p.inner.ForTopic(topic), topic: topic, log: p.log, health: p.health}
}

// topicPartitioner is called by the client library under a lock per topic.
type topicPartitioner struct {
	kgo.TopicPartitioner
	topic   string
	log     *zap.Logger
	health  *sink.Health
	parts   []*sink.Part // of the partitions
	sharded kgo.Record   // for a record with a sharding key; the inner partitioner uses its key alone
	last    int          // partitions at the last call; 0 before the first
}

// RequiresConsistency implements kgo.TopicPartitioner: Partition then gets the number of all partitions, not of those with a
// leader at present.
func (p *topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	m := message(r)
	return m.Partition != outbox.NoPartition || m.ShardingKey != "" || m.Key != ""
}

// Partition implements kgo.TopicPartitioner. -1 makes the client return the record at once.
func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	partition := p.choose(r, n)
	if partition >= 0 && p.RequiresConsistency(r) && !p.enter(r.Context.(*delivery), partition) {
		return -1
	}
	return partition
}

// enter counts a message at its partition, once however often it is called, and reports whether it may be sent there. Only
// messages with a fixed partition, by key or by the row, are counted: for the others the client chooses a partition that has a
// leader.
func (p *topicPartitioner) enter(d *delivery, partition int) bool {
	if d.partition != nil {
		return true
	}
	for len(p.parts) <= partition {
		p.parts = append(p.parts, p.health.Part(p.topic+"/"+strconv.Itoa(len(p.parts))))
	}
	if d.away = !p.parts[partition].Enter(time.Now()); d.away {
		return false
	}
	d.partition = p.parts[partition]
	return true
}

func (p *topicPartitioner) choose(r *kgo.Record, n int) int {
	m := message(r)
	if m.Partition == outbox.NoPartition && m.ShardingKey == "" {
		return p.TopicPartitioner.Partition(r, n) // by the key, or anywhere
	}
	if n != p.last {
		if p.last != 0 {
			p.log.Warn("the topic's partitions changed: keys move to other partitions, so messages of one key may be "+
				"consumed out of order around this time", zap.String("topic", p.topic), zap.Int("before", p.last), zap.Int("now", n))
		}
		p.last = n
	}
	switch {
	case int(m.Partition) >= n:
		r.Context.(*delivery).partitions = int32(n)
		return -1
	case m.Partition != outbox.NoPartition:
		return int(m.Partition)
	case m.ShardingKey == m.Key:
		return p.TopicPartitioner.Partition(r, n)
	}
	p.sharded.Key = append(p.sharded.Key[:0], m.ShardingKey...)
	return p.TopicPartitioner.Partition(&p.sharded, n)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch: records without a key change partition here.
func (p *topicPartitioner) OnNewBatch() {
	if inner, ok := p.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		inner.OnNewBatch()
	}
}

func message(r *kgo.Record) *outbox.Message { return r.Context.(*delivery).message }
