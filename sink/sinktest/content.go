package sinktest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// byID indexes the messages of a topic and fails when one is stored twice.
func byID(t testing.TB, stored []Stored) map[string]Stored {
	t.Helper()
	index := make(map[string]Stored, len(stored))
	for _, s := range stored {
		if _, twice := index[s.MessageID]; twice {
			t.Fatalf("message %s is stored twice", s.MessageID)
		}
		index[s.MessageID] = s
	}
	return index
}

// wantStored fails unless the topic holds exactly these messages, those of one sharding key in this order in one partition.
func (b *bench) wantStored(topic string, messages []*outbox.Message) {
	b.t.Helper()
	index := byID(b.t, b.Read(b.t, topic))
	if len(index) != len(messages) {
		b.t.Fatalf("topic %s holds %d messages, want %d", topic, len(index), len(messages))
	}
	last := map[string]Stored{}
	for _, m := range messages {
		s, there := index[m.MessageID]
		if !there {
			b.t.Fatalf("message %s was reported sent but is not in topic %s", m.MessageID, topic)
		}
		before, keyed := last[m.ShardingKey]
		if m.ShardingKey == "" {
			continue
		}
		if keyed && (s.Partition != before.Partition || s.Offset <= before.Offset) {
			b.t.Fatalf("key %q: message %s at %d/%d is not after message %s at %d/%d", m.ShardingKey,
				s.MessageID, s.Partition, s.Offset, before.MessageID, before.Partition, before.Offset)
		}
		last[m.ShardingKey] = s
	}
}

func orderPerKey(t *testing.T, b *bench) {
	topic := b.Topic(t)
	var all []*outbox.Message
	for size := 1; len(all) < 3000; size = size*3%257 + 1 { // batches of many sizes, without a pause between them
		var batch []*outbox.Message
		for range size {
			batch = append(batch, b.message(topic, fmt.Sprintf("key-%d", (len(all)+len(batch))%17)))
		}
		all = append(all, batch...)
		b.send(batch...)
	}
	b.settle()
	b.want(outbox.ClassNone, all...)
	b.wantStored(topic, all)
	partitions := map[int32]bool{}
	for _, s := range b.Read(t, topic) {
		partitions[s.Partition] = true
	}
	if b.Partitions > 1 && len(partitions) < 2 {
		t.Errorf("17 keys went to %d of %d partitions", len(partitions), b.Partitions)
	}
}

func contentIsCarried(t *testing.T, b *bench) {
	topic := b.Topic(t)
	plain := b.message(topic, "")
	full := b.message(topic, "SKU-1")
	full.Tag = "created"
	full.BizType = "order"
	full.Headers = []outbox.Header{{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {Name: "tenant", Value: "blue"}}
	full.Body = []byte{0, 1, 2, 0xff, 0xfe, '\n', '"'}
	text := b.message(topic, "ключ")
	text.Body = []byte(strings.Repeat("тело", 2000))
	b.sendAll(outbox.ClassNone, plain, full, text)
	index := byID(t, b.Read(t, topic))
	for _, m := range []*outbox.Message{plain, full, text} {
		s, there := index[m.MessageID]
		if !there {
			t.Fatalf("message %s is not in the topic", m.MessageID)
		}
		if s.Key != m.Key || s.Tag != m.Tag || !bytes.Equal(s.Body, m.Body) || !sameHeaders(s.Headers, m.Headers) {
			t.Errorf("message %s came back as key %q, tag %q, headers %q, %d bytes", m.MessageID, s.Key, s.Tag, s.Headers, len(s.Body))
		}
	}
}

func sameHeaders(a, b []outbox.Header) bool {
	order := func(x, y outbox.Header) int { return strings.Compare(x.Name+"\x00"+x.Value, y.Name+"\x00"+y.Value) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}

func shardingKey(t *testing.T, b *bench) {
	topic := b.Topic(t)
	var all []*outbox.Message
	for i := range 60 {
		m := b.message(topic, fmt.Sprintf("line-%d", i))
		m.ShardingKey = fmt.Sprintf("order-%d", i%3)
		all = append(all, m)
	}
	b.sendAll(outbox.ClassNone, all...)
	b.wantStored(topic, all)
	index := byID(t, b.Read(t, topic))
	for i, m := range all {
		if s := index[m.MessageID]; s.Key != fmt.Sprintf("line-%d", i) {
			t.Fatalf("message %s came back with key %q", m.MessageID, s.Key)
		}
	}
}

func explicitPartition(t *testing.T, b *bench) {
	if b.Partitions < 2 {
		t.Skip("this broker has no partitions")
	}
	topic := b.Topic(t)
	var all []*outbox.Message
	for i := range 4 * b.Partitions {
		m := b.message(topic, "one key")
		m.Partition = int32(i % b.Partitions)
		all = append(all, m)
	}
	away := b.message(topic, "one key")
	away.Partition = int32(b.Partitions)
	b.send(append([]*outbox.Message{away}, all...)...)
	b.settle()
	b.want(outbox.ClassNone, all...)
	index := byID(t, b.Read(t, topic))
	for _, m := range all {
		if s := index[m.MessageID]; s.Partition != m.Partition {
			t.Fatalf("message %s for partition %d is in %d", m.MessageID, m.Partition, s.Partition)
		}
	}
	if r := b.result(away); r.Class == outbox.ClassNone {
		t.Errorf("a partition that does not exist was accepted")
	}
}

func nullAndEmptyBody(t *testing.T, b *bench) {
	topic := b.Topic(t)
	for name, body := range map[string][]byte{"NULL": nil, "empty": {}} {
		m, neighbour := b.message(topic, "k"), b.message(topic, "k")
		m.Body = body
		b.send(m, neighbour)
		b.settle()
		b.want(outbox.ClassNone, neighbour)
		if b.RefusesEmpty {
			b.want(outbox.ClassPermanent, m)
			continue
		}
		b.want(outbox.ClassNone, m)
		s, there := byID(t, b.Read(t, topic))[m.MessageID]
		if !there || len(s.Body) != 0 || (s.Body == nil) != (body == nil) {
			t.Fatalf("%s body came back as %#v", name, s.Body)
		}
	}
}

func oddHeaders(t *testing.T, b *bench) {
	topic := b.Topic(t)
	odd := []outbox.Header{
		{Name: "control", Value: "a\x01b\x02c"},
		{Name: "empty", Value: ""},
		{Name: "", Value: "no name"},
		{Name: "binary", Value: "\xff\xfe\x00"},
		{Name: "lines", Value: "a\r\nb\tc"},
		{Name: "name\x01odd", Value: "v"},
		{Name: "quoted", Value: `{"a":"b"}`},
		{Name: "имя", Value: "значение"},
		{Name: "long", Value: strings.Repeat("x", 40000)},
	}
	var all []*outbox.Message
	for _, header := range odd {
		m := b.message(topic, "k")
		m.Headers = []outbox.Header{{Name: "before", Value: "1"}, header, {Name: "after", Value: "2"}}
		all = append(all, m)
	}
	b.send(all...)
	b.settle()
	index := byID(t, b.Read(t, topic))
	for i, m := range all {
		s, stored := index[m.MessageID]
		switch r := b.result(m); {
		case r.Class == outbox.ClassPermanent && !stored:
		case r.Class != outbox.ClassNone:
			t.Errorf("header %.40q: class %s (%s): neither carried nor refused for good", odd[i].Name, r.Class, r.Reason)
		case !stored || !sameHeaders(s.Headers, m.Headers):
			t.Errorf("header %.40q=%.40q was sent, but came back as %.200q", odd[i].Name, odd[i].Value, s.Headers)
		}
	}
}
