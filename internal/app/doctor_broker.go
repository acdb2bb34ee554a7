package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
)

// broker asks the sink, without publishing anything.
func (d *brokerCheck) broker(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	s, err := newSink(d.cfg, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		d.add(server.Fault, "sink", "", "%v", err)
		return
	}
	defer func() {
		if err := s.Close(ctx); err != nil {
			d.add(server.Warning, "sink", "", "it did not close: %v", err)
		}
	}()
	if err := s.Probe(ctx); err != nil {
		d.add(server.Fault, "sink", "check the addresses and credentials under sink, and that the broker runs", "the broker does not take messages: %v", err)
		return
	}
	d.add(server.OK, "sink", "", "the broker answers")
	d.size()
	faults, err := s.Topics(ctx, d.topics)
	if err != nil {
		d.add(server.Fault, "sink", "", "the broker could not be asked for topics: %v", err)
		return
	}
	var sound []string
	for _, topic := range d.topics {
		if err := faults[topic]; err != nil {
			d.add(server.Fault, "topic "+topic, "create the topic, or allow this account to write to it", "%v; its rows would wait in the table", err)
			continue
		}
		d.add(server.OK, "topic "+topic, "", "exists")
		sound = append(sound, topic)
	}
	if k, is := s.(*kafka.Sink); is {
		d.kafka(ctx, k, sound)
	}
}

// size compares the newest rows with the broker's limit.
func (d *brokerCheck) size() {
	var limit config.Bytes
	switch s := d.cfg.Sink; {
	case s.Kafka != nil:
		limit = s.Kafka.MaxMessageBytes
	case s.RocketMQ != nil:
		limit = s.RocketMQ.MaxMessageBytes
	}
	largest := slices.Max(append(slices.Collect(maps.Values(d.largest)), 0))
	if limit > 0 && largest >= int64(limit) {
		d.add(server.Warning, "sink", "raise the limit at the brokers and max_message_bytes here, or keep large content elsewhere",
			"of the newest rows one has a body of %d bytes, the limit is %v: such rows become FAILED", largest, limit)
	}
}

// kafka looks at what the topics' settings make of an acknowledgement and of large messages.
func (d *brokerCheck) kafka(ctx context.Context, sink *kafka.Sink, topics []string) {
	settings, err := sink.Settings(ctx, topics)
	if err != nil {
		d.add(server.Warning, "sink", "", "the settings of the topics are not known: %v", err)
		return
	}
	for _, topic := range topics {
		s := settings[topic]
		if s.Err != nil {
			d.add(server.Warning, "topic "+topic, "grant DESCRIBE_CONFIGS on the topic, or look at min.insync.replicas and max.message.bytes yourself",
				"its settings cannot be read: %v", s.Err)
			continue
		}
		d.copies(topic, s)
		d.batches(topic, int64(s.MaxMessageBytes))
	}
}

// copies says what an acknowledgement is worth: acks=all waits for the replicas that are in step, however few (B41).
func (d *brokerCheck) copies(topic string, s kafka.TopicSettings) {
	subject, two := "topic "+topic, d.alterTopic(topic, "min.insync.replicas=2")
	switch {
	case s.MinInSync == 0 || s.Replicas == 0: // a cluster that does not tell
	case s.MinInSync > s.Replicas:
		d.add(server.Fault, subject, d.alterTopic(topic, fmt.Sprintf("min.insync.replicas=%d", max(1, s.Replicas-1))),
			"min.insync.replicas is %d and there are %d replicas: the topic takes no message; its rows would wait in the table", s.MinInSync, s.Replicas)
	case s.Replicas == 1:
		d.add(server.Warning, subject, "raise its replicas to 3 (kafka-reassign-partitions.sh), and then\n"+two,
			"it has one replica: an acknowledged message is on one disk, and is lost with it though its row is SENT")
	case s.MinInSync == 1:
		d.add(server.Warning, subject, two, "min.insync.replicas is 1: while the other replicas (it has %d) are away or behind, acks=all means one copy; "+
			"a message acknowledged then is lost with that broker though its row is SENT", s.Replicas)
	default:
		d.add(server.OK, subject, "", "an acknowledged message has at least %d copies (replicas: %d)", s.MinInSync, s.Replicas)
	}
}

// batches compares what the topic takes with what the client sends and with the newest rows (B38).
func (d *brokerCheck) batches(topic string, limit int64) {
	subject, ours := "topic "+topic, d.cfg.Sink.Kafka.MaxMessageBytes
	if limit == 0 || limit >= int64(ours) {
		return // a row that is too large for both is told of where our own limit is
	}
	if d.largest[topic] >= limit {
		unless := ""
		if d.cfg.Sink.Kafka.Compression != "none" {
			unless = ", unless compression makes them smaller"
		}
		d.add(server.Warning, subject, d.alterTopic(topic, fmt.Sprintf("max.message.bytes=%d", ours))+"\nor keep large content elsewhere",
			"of its newest rows one has a body of %d bytes, its max.message.bytes is %d: such rows become FAILED%s", d.largest[topic], limit, unless)
		return
	}
	d.add(server.Warning, subject, fmt.Sprintf("set sink.kafka.max_message_bytes to %d, or\n%s", limit, d.alterTopic(topic, fmt.Sprintf("max.message.bytes=%d", ours))),
		"its max.message.bytes is %d, max_message_bytes here is %v: batches between the two are refused and sent again one by one", limit, ours)
}

// alterTopic is the command that changes a setting of a topic.
func (d *brokerCheck) alterTopic(topic, setting string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s",
		d.cfg.Sink.Kafka.Brokers[0], topic, setting)
}
