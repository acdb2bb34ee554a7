package rocketmq

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// FuzzBuild: a message that fault accepts is decoded unchanged from both request forms, and so are its neighbours.
func FuzzBuild(f *testing.F) {
	f.Add("m-1", "k", "tag", "shard", "order", "name", "value", []byte("body"), int64(0))
	f.Add("m 1", "m 1", "", "", "", "biz_type", "wins", []byte{0}, int64(1))
	f.Add("a\x01b", "\x02", "\xff", "\n", "é", "KEYS", "", []byte{}, int64(-1))
	f.Add("m", "k", "t", "s", "b", "TIMER_DELIVER_MS", "5", []byte("x"), int64(1)<<40)
	f.Fuzz(func(t *testing.T, id, key, tag, shard, biz, name, value string, body []byte, due int64) {
		now := time.UnixMilli(1_700_000_000_000)
		m := &outbox.Message{
			Identity: outbox.Identity{ID: "1", MessageID: id}, Topic: "orders", Key: key, Tag: tag, ShardingKey: shard, BizType: biz,
			Body: body, Headers: []outbox.Header{{Name: name, Value: value}}, DueAt: now.Add(time.Duration(due)),
		}
		e := newEncoder()
		m.Later = due%2 == 0
		if e.fault(m, now) != "" {
			return
		}
		queue := &primitive.MessageQueue{Topic: "orders", BrokerName: "broker-a"}
		neighbour := message("orders", "neighbour")
		data := e.many([]*outbox.Message{neighbour, m, neighbour}, queue, now).Body
		for i, want := range []*outbox.Message{neighbour, m, neighbour} {
			var got *primitive.Message
			got, data = nextEntry(t, data)
			if string(got.Body) != string(want.Body) || got.GetProperty("UNIQ_KEY") != want.MessageID {
				t.Fatalf("entry %d: %q %v", i, got.Body, got.GetProperties())
			}
			for _, h := range want.Headers {
				if got.GetProperty(h.Name) != h.Value {
					t.Fatalf("entry %d: header %q is %q, want %q", i, h.Name, got.GetProperty(h.Name), h.Value)
				}
			}
		}
		if len(data) > 0 {
			t.Fatalf("%d bytes are left", len(data))
		}
		one := e.single(m, queue, now)
		if one.GetProperty(name) != value || one.GetProperty("UNIQ_KEY") != id || string(one.Body) != string(body) {
			t.Fatalf("alone: %q %v", one.Body, one.GetProperties())
		}
	})
}

// nextEntry reads the first message of a batch and returns the rest.
func nextEntry(t *testing.T, data []byte) (*primitive.Message, []byte) {
	t.Helper()
	word := func(at int) int { return int(binary.BigEndian.Uint32(data[at:])) }
	const fixed = 20 // size, magic code, checksum, flag, body length
	if len(data) < fixed || word(0) > len(data) || fixed+word(16)+2 > word(0) {
		t.Fatalf("a damaged entry in % x", data)
	}
	size, end := word(0), fixed+word(16)
	if length := int(binary.BigEndian.Uint16(data[end:])); end+2+length != size {
		t.Fatalf("properties of %d bytes in an entry of %d", length, size)
	}
	m := &primitive.Message{Body: data[fixed:end]}
	m.WithProperties(remoting.SplitProperties(string(data[end+2 : size])))
	return m, data[size:]
}
