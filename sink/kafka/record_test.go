package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// readRecords returns the records of a topic as a consumer gets them.
func readRecords(t testing.TB, addr, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	records, err := testkit.ReadKafkaTopic(ctx, addr, topic)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestHeadersOfARecord(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr())
	m := messages(topic, 1)[0]
	m.BizType, m.Tag = "order", "created"
	m.CreatedAt = time.Date(2026, 11, 20, 8, 0, 0, 123e6, time.FixedZone("", 8*3600))
	m.Headers = []outbox.Header{{Name: "tenant", Value: "blue"}, {Name: "message_id", Value: "other"}, {Name: "tag", Value: "other"}, {Name: "tenant", Value: "again"}}
	wantClass(t, outbox.ClassNone, publish(t, s, m)...)
	var got []string
	for _, h := range readRecords(t, f.Addr(), topic)[0].Headers {
		got = append(got, h.Key+"="+string(h.Value))
	}
	want := "message_id=order:1 biz_type=order created_at=2026-11-20T00:00:00.123Z tag=created tenant=blue tenant=again"
	if strings.Join(got, " ") != want {
		t.Errorf("headers %s\nwant    %s", strings.Join(got, " "), want)
	}
}

func TestHeadersOfABareRecord(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr())
	m := messages(topic, 1)[0]
	m.Key, m.ShardingKey = "", ""
	m.Headers = []outbox.Header{{Name: "biz_type", Value: "the row's own"}}
	wantClass(t, outbox.ClassNone, publish(t, s, m)...)
	r := readRecords(t, f.Addr(), topic)[0]
	if len(r.Headers) != 2 || r.Headers[1].Key != "biz_type" || string(r.Headers[1].Value) != "the row's own" {
		t.Errorf("headers %v", r.Headers)
	}
	if r.Key != nil {
		t.Errorf("a row without a key became a record with key %q", r.Key)
	}
}

func TestB40_TimeOfTheRecordIsThatOfTheSend(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr())
	m := messages(topic, 1)[0]
	m.CreatedAt = time.Now().AddDate(0, 0, -30)
	before := time.Now().Truncate(time.Millisecond)
	wantClass(t, outbox.ClassNone, publish(t, s, m)...)
	if at := readRecords(t, f.Addr(), topic)[0].Timestamp; at.Before(before) || at.After(time.Now()) {
		t.Errorf("the record's time is %s", at)
	}
}

func TestB33_BrokerIDIsWhereTheMessageIs(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr())
	all := messages(topic, 300)
	for i, m := range all {
		m.Key = fmt.Sprint(i % 7)
		m.ShardingKey = m.Key
	}
	at := map[string]string{}
	results := publish(t, s, all...)
	for _, r := range stored(t, f.Addr(), topic) {
		at[r.MessageID] = fmt.Sprintf("%d@%d", r.Partition, r.Offset)
	}
	for _, r := range results {
		if r.BrokerID == "" || r.BrokerID != at[r.Message.MessageID] {
			t.Fatalf("message %s is at %s, the result says %q", r.Message.MessageID, at[r.Message.MessageID], r.BrokerID)
		}
	}
}

func TestB08_TopicNames(t *testing.T) {
	for name, legal := range map[string]bool{
		"orders": true, "a.b_c-D9": true, strings.Repeat("x", 249): true, "...": true,
		"": false, ".": false, "..": false, "a b": false, "a/b": false, "größe": false, strings.Repeat("x", 250): false, "a\x00": false, "%DLQ%": false,
	} {
		if reason := topicFault(name); (reason == "") != legal {
			t.Errorf("%q: %q", name, reason)
		}
	}
}

func TestB06_WhatIsRefusedBeforeTheSend(t *testing.T) {
	s := newSink(t, "127.0.0.1:1", func(c *config) { c.maxBytes = 2000 }) // no broker is needed
	large, headers, name, partition := messages("t", 1)[0], messages("t", 1)[0], messages("t", 1)[0], messages("t", 1)[0]
	large.Body = make([]byte, 2000)
	headers.Headers = []outbox.Header{{Name: "h", Value: strings.Repeat("v", 2000)}}
	name.Headers = []outbox.Header{{Name: "\xff", Value: "v"}}
	partition.Partition = -7
	wantClass(t, outbox.ClassPermanent, publish(t, s, large, headers, name, partition)...)
}

func TestPartitionerMatchesJava(t *testing.T) {
	// murmur2 of these keys as in the tests of org.apache.kafka.common.utils.Utils; the partition is its low 31 bits
	// modulo the number of partitions.
	topic := newPartitioner(zap.NewNop(), sink.NewHealth(100)).ForTopic("t")
	for key, hash := range map[string]int32{"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829} {
		d := &delivery{message: &outbox.Message{Key: key, ShardingKey: key, Partition: outbox.NoPartition}}
		r := &kgo.Record{Key: []byte(key), Context: d}
		if got, want := topic.Partition(r, 1000), int(hash&0x7fffffff)%1000; got != want || !topic.RequiresConsistency(r) {
			t.Errorf("key %q: partition %d, want %d", key, got, want)
		}
		d = &delivery{message: &outbox.Message{Key: "other", ShardingKey: key, Partition: outbox.NoPartition}}
		r = &kgo.Record{Key: []byte("other"), Context: d}
		if got, want := topic.Partition(r, 1000), int(hash&0x7fffffff)%1000; got != want {
			t.Errorf("sharding key %q: partition %d, want %d", key, got, want)
		}
	}
}

func TestB42_GrowthOfATopicIsLogged(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	topic := newPartitioner(zap.New(core), sink.NewHealth(100)).ForTopic("orders")
	d := &delivery{message: &outbox.Message{Key: "k", ShardingKey: "k", Partition: outbox.NoPartition}}
	r := &kgo.Record{Key: []byte("k"), Context: d}
	for _, n := range []int{4, 4, 6, 6} {
		topic.Partition(r, n)
	}
	if logs.Len() != 1 || logs.All()[0].ContextMap()["now"] != int64(6) {
		t.Errorf("logged: %v", logs.All())
	}
}

// No body may reach a log, at any level.
func TestNoBodyInTheLog(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), map[string]string{"max.message.bytes": "2000"})
	core, logs := observer.New(zapcore.DebugLevel)
	s, err := open(testConfig(f.Addr()), zap.New(core), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	all := messages(topic, 20)
	for _, m := range all {
		m.Body = []byte(strings.Repeat("canary", 100))
	}
	all[3].Body = []byte(strings.Repeat("canary", 1000))
	results := publish(t, s, all...)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if logs.Len() == 0 {
		t.Error("nothing was logged at all")
	}
	s.library.Log(kgo.LogLevelInfo, "written by what the library leaves behind")
	if logs.FilterMessageSnippet("leaves behind").Len() != 0 {
		t.Error("the library writes to the log of a sink that is closed")
	}
	for _, entry := range logs.All() {
		if text := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(text, "canary") {
			t.Errorf("logged: %.200s", text)
		}
	}
	for _, r := range results {
		if strings.Contains(r.Reason, "canary") {
			t.Errorf("reason: %.200s", r.Reason)
		}
	}
}
