package kafka

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Names of the headers that the relay adds. The last three are left out when the row has no such value. A header of the row with
// the name of an added one is dropped, so that each name has one value.
const (
	HeaderMessageID = "message_id"
	HeaderBizType   = "biz_type"
	HeaderCreatedAt = "created_at" // RFC 3339, UTC
	HeaderTag       = "tag"
)

// batch is the messages of one Send.
type batch struct {
	done       func([]sink.Result)
	number     uint64 // of the Send, see wire
	deliveries []delivery
	ready      []*delivery // have their outcome and wait to be reported; guarded by results.mu
	left       int         // not reported yet; guarded by results.mu
}

// delivery is one message in flight. It is the context of its record, because that is the only pointer that the client library
// passes to the partitioner and the promise; as a context it is never cancelled.
type delivery struct {
	context.Context
	record     kgo.Record
	message    *outbox.Message
	batch      *batch
	partitions int32 // the topic's number of partitions, when the row's partition is beyond it

	partition *sink.Part // where it is counted, between Enter and Leave
	away      bool       // its partition is away: not passed to the client

	finished bool // guarded by results.mu, like the next fields
	outcome  outbox.Outcome
}

// newBatch creates the records of a batch. They share one array of deliveries, one of headers and one of bytes; bodies are not
// copied.
func newBatch(messages []*outbox.Message, done func([]sink.Result)) *batch {
	b := &batch{done: done, deliveries: make([]delivery, len(messages)), ready: make([]*delivery, 0, len(messages)), left: len(messages)}
	headers, bytes := 0, 0
	for _, m := range messages {
		headers += len(m.Headers) + 4
		bytes += len(m.Key) + len(m.MessageID) + len(m.BizType) + len(m.Tag) + len(time.RFC3339Nano)
		for i := range m.Headers {
			bytes += len(m.Headers[i].Value)
		}
	}
	w := writer{headers: make([]kgo.RecordHeader, 0, headers), bytes: make([]byte, 0, bytes)}
	for i, m := range messages {
		d := &b.deliveries[i]
		d.Context, d.message, d.batch = context.Background(), m, b
		w.write(m, &d.record)
		d.record.Context = d
	}
	return b
}

// writer fills records from shared arrays.
type writer struct {
	headers []kgo.RecordHeader
	bytes   []byte
}

// write sets everything but the time (the client uses that of the send) and the partition. A record without a key or value (SQL
// NULL) has nil there, which differs from an empty one: no value deletes the key from a compacted topic.
func (w *writer) write(m *outbox.Message, r *kgo.Record) {
	r.Topic, r.Value = m.Topic, m.Body
	if m.Key != "" {
		r.Key = w.copy(m.Key)
	}
	from := len(w.headers)
	w.header(HeaderMessageID, m.MessageID)
	if m.BizType != "" {
		w.header(HeaderBizType, m.BizType)
	}
	if !m.CreatedAt.IsZero() {
		at := len(w.bytes)
		w.bytes = m.CreatedAt.UTC().AppendFormat(w.bytes, time.RFC3339Nano)
		w.headers = append(w.headers, kgo.RecordHeader{Key: HeaderCreatedAt, Value: w.bytes[at:len(w.bytes):len(w.bytes)]})
	}
	if m.Tag != "" {
		w.header(HeaderTag, m.Tag)
	}
	for i := range m.Headers {
		if h := &m.Headers[i]; !isAdded(m, h.Name) {
			w.header(h.Name, h.Value)
		}
	}
	r.Headers = w.headers[from:len(w.headers):len(w.headers)]
}

func (w *writer) header(name, value string) {
	w.headers = append(w.headers, kgo.RecordHeader{Key: name, Value: w.copy(value)})
}

func (w *writer) copy(text string) []byte {
	from := len(w.bytes)
	w.bytes = append(w.bytes, text...)
	return w.bytes[from:len(w.bytes):len(w.bytes)]
}

func isAdded(m *outbox.Message, name string) bool {
	switch name {
	case HeaderMessageID:
		return true
	case HeaderBizType:
		return m.BizType != ""
	case HeaderCreatedAt:
		return !m.CreatedAt.IsZero()
	case HeaderTag:
		return m.Tag != ""
	}
	return false
}

// recordOverhead is the size of a record in its own batch in addition to its bytes, rounded down: the batch header. Format:
// Apache Kafka documentation, "Record Batch".
const recordOverhead = 61

// refusal returns why the broker would never accept the message, or "". It must not refuse what would fit: lengths are rounded
// down, only the client has the exact size.
func (s *Sink) refusal(d *delivery) string {
	if reason := topicFault(d.message.Topic); reason != "" {
		return reason
	}
	size := recordOverhead + len(d.record.Key) + len(d.record.Value)
	for i := range d.record.Headers {
		h := &d.record.Headers[i]
		size += len(h.Key) + len(h.Value)
		if !utf8.ValidString(h.Key) {
			return fmt.Sprintf("header name %q is not UTF-8, which Kafka requires", h.Key)
		}
	}
	if size > s.cfg.maxBytes {
		return fmt.Sprintf("the message has %d bytes with its key and headers, more than sink.kafka.max_message_bytes (%d)", size, s.cfg.maxBytes)
	}
	if p := d.message.Partition; p < 0 && p != outbox.NoPartition {
		return fmt.Sprintf("partition %d does not exist", p)
	}
	return ""
}

// topicFault checks a name as Kafka does (org.apache.kafka.common.internals.Topic).
func topicFault(topic string) string {
	if topic == "." || topic == ".." {
		return fmt.Sprintf("%q is not a topic name", topic)
	}
	return sink.NameFault(topic, "._-", 249)
}
