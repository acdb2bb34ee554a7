package kafka

import (
	"context"
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Check reports what the topics' settings mean for acknowledgements and for large messages. It publishes nothing.
func (s *Section) Check(ctx context.Context, opened sink.Sink, newest sink.Newest) []server.Finding {
	d := &check{section: s, largest: newest.Largest}
	k, is := opened.(*Sink)
	if x, proves := opened.(*Exactly); proves {
		k, is, newest.ReadBack = x.Sink, true, false
		d.exactly(ctx, x)
	}
	if !is {
		return nil
	}
	if newest.ReadBack {
		d.readBack(ctx, k, newest.Topics)
	}
	settings, err := k.Settings(ctx, newest.Topics)
	if err != nil {
		d.add(server.Warning, "sink", "", "the settings of the topics are not known: %v", err)
		return d.findings
	}
	for _, topic := range newest.Topics {
		s := settings[topic]
		if s.Err != nil {
			d.add(server.Warning, "topic "+topic, "grant DESCRIBE_CONFIGS on the topic, or check min.insync.replicas and max.message.bytes yourself",
				"its settings cannot be read: %v", s.Err)
			continue
		}
		d.copies(topic, s)
		d.batches(topic, int64(s.MaxMessageBytes))
	}
	return d.findings
}

// check collects findings about topics.
type check struct {
	section  *Section
	largest  map[string]int64
	findings []server.Finding
}

func (d *check) add(severity server.Severity, subject, fix, what string, args ...any) {
	d.findings = append(d.findings, server.Finding{Severity: severity, Subject: subject, What: fmt.Sprintf(what, args...), Fix: fix})
}

// readBack reports the topics that a start after a kill cannot read.
func (d *check) readBack(ctx context.Context, k *Sink, topics []string) {
	without, err := k.unreadable(ctx, topics)
	if err != nil {
		d.add(server.Warning, "sink", "", "not known whether read_back may read the topics: %v", err)
	}
	for _, topic := range without {
		d.add(server.Warning, "topic "+topic, fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s --operation Read --topic %s",
			d.section.Brokers[0], d.section.SASL.User, topic),
			"read_back is enabled and the account may not read the topic: after a kill some of its messages are sent again")
	}
}

// copies reports how safe an acknowledgement is: acks=all waits for the in-sync replicas, however few (B41).
func (d *check) copies(topic string, s TopicSettings) {
	subject, two := "topic "+topic, d.alterTopic(topic, "min.insync.replicas=2")
	switch {
	case s.MinInSync == 0 || s.Replicas == 0: // a cluster that does not report them
	case s.MinInSync > s.Replicas:
		d.add(server.Fault, subject, d.alterTopic(topic, fmt.Sprintf("min.insync.replicas=%d", max(1, s.Replicas-1))),
			"min.insync.replicas is %d and there are %d replicas: the topic accepts no message; its rows would wait in the table", s.MinInSync, s.Replicas)
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

// batches compares the topic's limit with the client's batches and the newest rows (B38).
func (d *check) batches(topic string, limit int64) {
	subject, ours := "topic "+topic, d.section.MaxMessageBytes
	if limit == 0 || limit >= int64(ours) {
		return // a row that is too large for both is reported by the check of our own limit
	}
	if d.largest[topic] >= limit {
		unless := ""
		if d.section.Compression != "none" {
			unless = ", unless compression makes them smaller"
		}
		d.add(server.Warning, subject, d.alterTopic(topic, fmt.Sprintf("max.message.bytes=%d", ours))+"\nor keep large content elsewhere",
			"one of its newest rows has a body of %d bytes, and its max.message.bytes is %d: such rows become FAILED%s", d.largest[topic], limit, unless)
		return
	}
	d.add(server.Warning, subject, fmt.Sprintf("set sink.kafka.max_message_bytes to %d, or\n%s", limit, d.alterTopic(topic, fmt.Sprintf("max.message.bytes=%d", ours))),
		"its max.message.bytes is %d, max_message_bytes here is %v: batches between the two are refused and sent again one by one", limit, ours)
}

// alterTopic returns the command that changes a setting of a topic.
func (d *check) alterTopic(topic, setting string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s",
		d.section.Brokers[0], topic, setting)
}
