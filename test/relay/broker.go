package relay

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Record is what a consumer gets of a message, the same for both brokers.
type Record struct {
	Topic       string
	Partition   int // partition, or queue of RocketMQ; the records of a topic come by partition, each in order
	MessageID   string
	Key         string
	Tag         string
	BizType     string
	ShardingKey string            // RocketMQ only
	Headers     map[string]string // of the row
	Body        []byte            // nil for none
	Producer    string            // another one after each start of the relay and each new connection
	Offset      int64             // in its partition
	Stored      time.Time         // when the record was made (Kafka) or stored (RocketMQ)
}

// Broker is a broker under test.
type Broker interface {
	// Sink is the entry of the sink section that reaches it.
	Sink() string
	// Read returns the records of a topic.
	Read(ctx context.Context, topic string) ([]Record, error)
	// TakesEmpty reports whether a message may have no body.
	TakesEmpty() bool
}

// ReadAll returns the records of several topics.
func ReadAll(t testing.TB, b Broker, topics ...string) []Record {
	t.Helper()
	var all []Record
	for _, topic := range topics {
		records, err := b.Read(t.Context(), topic)
		testkit.Must(t, err)
		all = append(all, records...)
	}
	return all
}

// Kafka is a Kafka broker.
type Kafka struct{ *testkit.Kafka }

// Sink implements Broker.
func (k Kafka) Sink() string { return KafkaSink(k.Addr()) }

// KafkaSink is the entry of the sink section for a plain listener.
func KafkaSink(addr string) string { return fmt.Sprintf("kafka: {brokers: [%q]}", addr) }

// ExactlyOnceSink makes the state topic of a transactional id and returns the entry of the sink section that publishes in transactions.
func ExactlyOnceSink(t testing.TB, k *testkit.Kafka, id string) string {
	t.Helper()
	testkit.Must(t, k.CreateTopic(t.Context(), "__"+id+"_state", 1, map[string]string{"cleanup.policy": "compact"}))
	return fmt.Sprintf("kafka: {brokers: [%q], exactly_once: true, transactional_id: %s}", k.Addr(), id)
}

// TakesEmpty implements Broker.
func (Kafka) TakesEmpty() bool { return true }

// Read implements Broker.
func (k Kafka) Read(ctx context.Context, topic string) ([]Record, error) {
	return ReadKafka(ctx, k.Addr(), topic)
}

// ReadKafka reads a topic of any Kafka cluster by the address of one of its brokers.
func ReadKafka(ctx context.Context, addr, topic string) ([]Record, error) {
	stored, err := testkit.ReadKafkaTopic(ctx, addr, topic)
	records := make([]Record, 0, len(stored))
	for _, s := range stored {
		records = append(records, FromKafka(s))
	}
	return records, err
}

// FromKafka is what a consumer gets of a message in Kafka.
func FromKafka(s *kgo.Record) Record {
	r := Record{
		Topic: s.Topic, Partition: int(s.Partition), Key: string(s.Key), Body: s.Value, Headers: map[string]string{},
		Producer: strconv.FormatInt(s.ProducerID, 10), Offset: s.Offset, Stored: s.Timestamp,
	}
	for _, h := range s.Headers {
		switch value := string(h.Value); h.Key {
		case "message_id":
			r.MessageID = value
		case "biz_type":
			r.BizType = value
		case "tag":
			r.Tag = value
		case "created_at":
		default:
			r.Headers[h.Key] = value
		}
	}
	r.dropSecondID()
	return r
}

// dropSecondID takes the header away with which the preset order-chain repeats the message id.
func (r *Record) dropSecondID() {
	if r.Headers["messageId"] == r.MessageID {
		delete(r.Headers, "messageId")
	}
}

// RocketMQ is a RocketMQ broker with its name server.
type RocketMQ struct{ *testkit.RocketMQ }

// Sink implements Broker.
func (q RocketMQ) Sink() string { return RocketMQSink(q.NameServer()) }

// RocketMQSink is the entry of the sink section for a name server.
func RocketMQSink(nameServer string) string {
	return fmt.Sprintf("rocketmq: {name_servers: [%q]}", nameServer)
}

// TakesEmpty implements Broker.
func (RocketMQ) TakesEmpty() bool { return false }

// brokerProperties are those that the broker and the relay add to the row's headers.
var brokerProperties = SetOf(strings.Fields("UNIQ_KEY KEYS WAIT TAGS SHARDING_KEY biz_type created_at MSG_REGION TRACE_ON CLUSTER INNER_NUM"))

// Read implements Broker.
func (q RocketMQ) Read(ctx context.Context, topic string) ([]Record, error) {
	return ReadRocketMQ(ctx, q.NameServer(), topic)
}

// ReadRocketMQ reads a topic of the brokers of a name server.
func ReadRocketMQ(ctx context.Context, nameServer, topic string) ([]Record, error) {
	stored, err := testkit.ReadRocketMQTopic(ctx, nameServer, topic)
	records := make([]Record, 0, len(stored))
	for _, s := range stored {
		records = append(records, FromRocketMQ(s))
	}
	return records, err
}

// FromRocketMQ is what a consumer gets of a message in RocketMQ.
func FromRocketMQ(s testkit.RocketMQMessage) Record {
	r := Record{
		Topic: s.Topic, Partition: s.QueueID, MessageID: s.ID(), Tag: s.Tag(), BizType: s.Properties["biz_type"],
		ShardingKey: s.Properties["SHARDING_KEY"], Body: s.Body, Headers: map[string]string{}, Producer: s.Producer, Offset: s.QueueOffset, Stored: s.Stored,
	}
	if keys := s.Keys(); len(keys) == 2 && keys[0] == r.MessageID {
		r.Key = keys[1]
	}
	for name, value := range s.Properties {
		if !brokerProperties[name] {
			r.Headers[name] = value
		}
	}
	r.dropSecondID()
	return r
}
