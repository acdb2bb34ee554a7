package rocketmq

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// patientBroker gives a cold broker on a busy machine time before it refuses what waits in its queue.
var patientBroker = map[string]string{"waitTimeMillsInSendQueue": "10000"}

// TestRocketMQ runs what the fake cannot show against one real broker.
func TestRocketMQ(t *testing.T) {
	r := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{"orders": 4, "limits": 1, "timer": 2, "paused": 2, "read": 3, "compared": 4}, Config: patientBroker})
	s := startSink(t, Section{NameServers: []string{r.NameServer()}, NativeDelay: true})
	t.Run("TheFakeIsAsStrict", func(t *testing.T) { theFakeIsAsStrict(t, r) })
	t.Run("EveryPropertyArrives", func(t *testing.T) { everyPropertyArrives(t, r, s) })
	t.Run("ReadBack", func(t *testing.T) { readBack(t, r, s) })
	t.Run("B06_LargestProperties", func(t *testing.T) { largestProperties(t, r, s) })
	t.Run("B14_UnknownTopicThenCreated", func(t *testing.T) { unknownThenCreated(t, r, s) })
	t.Run("ReleaseWithTimers", func(t *testing.T) { releaseWithTimers(t, r, s) })
	t.Run("B18_Timer", func(t *testing.T) { timer(t, r, s) })
	t.Run("PausedBroker", func(t *testing.T) { pausedBroker(t, r, s) })
	t.Run("NameServerDown", func(t *testing.T) { nameServerDown(t, r, s) })
}

// theFakeIsAsStrict sends the same requests to the fake cluster and to the real one: both answer with the same code.
func theFakeIsAsStrict(t *testing.T, r *testkit.RocketMQ) {
	c := newCluster(t)
	c.topic("compared")
	type servers struct{ names, broker string }
	for name, ask := range map[string]struct {
		want, code int
		names      bool
		change     map[string]string // of a send to queue 0 of the topic
		body       []byte
	}{
		"message":              {want: remoting.Success, code: remoting.Send, body: []byte("b")},
		"body at the limit":    {want: remoting.Success, code: remoting.Send, body: make([]byte, 4<<20)},
		"body above the limit": {want: remoting.Illegal, code: remoting.Send, body: make([]byte, 4<<20+1)},
		"empty body":           {want: remoting.SystemError, code: remoting.Send},
		"properties too long":  {want: remoting.Illegal, code: remoting.Send, body: []byte("b"), change: map[string]string{"properties": "h\x01" + strings.Repeat("x", 33_000) + "\x02"}},
		"unknown topic":        {want: remoting.NoTopic, code: remoting.Send, body: []byte("b"), change: map[string]string{"topic": "nowhere"}},
		"illegal topic":        {want: remoting.BadParameter, code: remoting.Send, body: []byte("b"), change: map[string]string{"topic": "a.b"}},
		"queue out of range":   {want: remoting.BadParameter, code: remoting.Send, body: []byte("b"), change: map[string]string{"queueId": "99"}},
		"unknown request":      {want: remoting.NotSupported, code: 9999},
		"heartbeat":            {want: remoting.Success, code: remoting.Heartbeat, body: []byte(`{"clientID":"c","producerDataSet":[{"groupName":"g"}],"consumerDataSet":[]}`)},
		"route":                {want: remoting.Success, code: remoting.RouteOfTopic, names: true},
		"route of no topic":    {want: remoting.NoTopic, code: remoting.RouteOfTopic, names: true, change: map[string]string{"topic": "nowhere"}},
		"clusters":             {want: remoting.Success, code: remoting.Clusters, names: true},
		"batch":                {want: remoting.Success, code: remoting.SendBatch, body: newEncoder().many(messages("compared", "k", 3), &primitive.MessageQueue{Topic: "compared"}, time.Now()).Body},
		"batch, unknown topic": {want: remoting.NoTopic, code: remoting.SendBatch, change: map[string]string{"b": "nowhere"}, body: newEncoder().many(messages("nowhere", "k", 3), &primitive.MessageQueue{Topic: "nowhere"}, time.Now()).Body},
		"batch, no such queue": {want: remoting.BadParameter, code: remoting.SendBatch, change: map[string]string{"e": "99"}, body: newEncoder().many(messages("compared", "k", 3), &primitive.MessageQueue{Topic: "compared"}, time.Now()).Body},
	} {
		fields := map[string]string{
			"producerGroup": "g", "topic": "compared", "queueId": "0", "properties": "", "bornTimestamp": "1", "sysFlag": "0", "flag": "0", "reconsumeTimes": "0",
			"unitMode": "false", "batch": "false", "defaultTopic": "", "defaultTopicQueueNums": "4",
		}
		if ask.code == remoting.SendBatch {
			fields = map[string]string{"a": "g", "b": "compared", "c": "", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "", "j": "0", "k": "false", "m": "true"}
		}
		maps.Copy(fields, ask.change)
		for kind, at := range map[string]servers{"fake": {c.names.addr, c.brokers["broker-a"].addr}, "real": {r.NameServer(), r.BrokerAddr()}} {
			addr := at.broker
			if ask.names {
				addr = at.names
			}
			_, _, err := (&remoting.Client{}).Ask(t.Context(), time.Minute, addr, ask.code, fields, ask.body)
			if !(ask.want == remoting.Success && err == nil || remoting.IsCode(err, ask.want)) {
				t.Errorf("%s, %s servers: %v, want code %d", name, kind, err, ask.want)
			}
		}
	}
}

// releaseWithTimers: a broker of release 5 reports it, by a number that no release 4 has.
func releaseWithTimers(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	section := &Section{NameServers: []string{r.NameServer()}, NativeDelay: true}
	found := section.Check(t.Context(), s, sink.Newest{})
	if len(found) != 1 || found[0].Severity != server.OK {
		t.Fatalf("%+v", found)
	}
	t.Log(found[0].What)
}

// readAll waits until a topic holds n messages.
func readAll(t *testing.T, r *testkit.RocketMQ, topic string, n int) (found []testkit.RocketMQMessage) {
	t.Helper()
	testkit.WaitFor(t, 30*time.Second, fmt.Sprintf("%d messages in %s", n, topic), func() bool {
		var err error
		found, err = testkit.ReadRocketMQTopic(t.Context(), r.NameServer(), topic)
		testkit.Must(t, err)
		return len(found) >= n
	})
	return found
}

func everyPropertyArrives(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	full := func(n int) []*outbox.Message {
		list := messages("orders", "SKU-1", n)
		for _, m := range list {
			m.ShardingKey, m.Tag, m.BizType, m.CreatedAt = "order-7", "paid", "order", time.Unix(1e9, 5e6).In(time.FixedZone("", 8*3600))
			m.Headers = []outbox.Header{{Name: "traceparent", Value: "00-1"}, {Name: "имя", Value: "значение"}}
			m.Body = []byte("\x00\xff\x01\x02 body of " + m.ID)
		}
		return list
	}
	list := full(31)
	single := send(t, s, list[0]).want(outbox.ClassNone)[0] // the rest as a batch
	ids := map[string]bool{single.BrokerID: true}
	for _, o := range send(t, s, list[1:]...).want(outbox.ClassNone) {
		ids[o.BrokerID] = true
	}
	if len(ids) != 31 || ids[""] || single.LessDurable {
		t.Errorf("31 messages got %d ids of the broker: %v", len(ids), ids)
	}
	for i, got := range readAll(t, r, "orders", len(list)) { // one key: one queue, in order
		m := list[i]
		want := map[string]string{
			"UNIQ_KEY": m.MessageID, "KEYS": m.MessageID + " SKU-1", "WAIT": "true", "TAGS": "paid", "SHARDING_KEY": "order-7",
			"biz_type": "order", "created_at": "2001-09-09T01:46:40.005Z", "traceparent": "00-1", "имя": "значение",
		}
		for name, value := range want {
			if got.Properties[name] != value {
				t.Errorf("message %d: property %s is %q, want %q", i, name, got.Properties[name], value)
			}
		}
		if string(got.Body) != string(m.Body) {
			t.Errorf("message %d: body %q, want %q", i, got.Body, m.Body)
		}
	}
}

// Our limit leaves room for what the broker adds: a message exactly at the limit is accepted in both requests and returned whole.
func largestProperties(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	list := messages("limits", "k", 3)
	for _, m := range list {
		size := 0
		m.Headers = []outbox.Header{{Name: "h", Value: "x"}}
		for _, p := range newEncoder().properties(m, time.Now()) {
			size += len(p.Name) + len(p.Value) + 2
		}
		m.Headers[0].Value = strings.Repeat("x", 1+maxProperties-size)
	}
	send(t, s, list[0]).want(outbox.ClassNone)
	send(t, s, list[1:]...).want(outbox.ClassNone)
	for i, got := range readAll(t, r, "limits", 3) {
		if got.ID() != list[i].MessageID || got.Properties["h"] != list[i].Headers[0].Value {
			t.Errorf("message %d came back with %d characters of %d", i, len(got.Properties["h"]), len(list[i].Headers[0].Value))
		}
	}
	list[0].Headers[0].Value += "x"
	send(t, s, list[0]).want(outbox.ClassPermanent)
}

func unknownThenCreated(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	early := messages("late", "k", 5)
	send(t, s, early...).want(outbox.ClassTopic)
	createTopic(t, r, "late", 2)
	testkit.WaitFor(t, 30*time.Second, "the new topic", func() bool {
		return send(t, s, early[0]).wait()[0].Class == outbox.ClassNone
	})
	send(t, s, early[1:]...).want(outbox.ClassNone)
	if n := len(readAll(t, r, "late", 5)); n != 5 {
		t.Errorf("%d messages are stored, want 5", n)
	}
}

func timer(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	list := messages("timer", "k", 3)
	list[0].DueAt, list[0].Later = time.Now().Add(3*time.Second), true
	list[1].DueAt, list[1].Later = time.Now().Add(-time.Hour), true
	send(t, s, list...).want(outbox.ClassNone)
	for _, got := range readAll(t, r, "timer", 3) {
		if got.ID() == list[0].MessageID && got.Stored.Before(list[0].DueAt.Truncate(time.Millisecond)) {
			t.Errorf("due %s, delivered %s", list[0].DueAt, got.Stored)
		}
	}
	list[2].DueAt, list[2].Later = time.Now().Add(96*time.Hour), true
	send(t, s, list[2]).want(outbox.ClassPermanent)
}

// A paused broker accepts connections and requests. Messages in flight get ClassUnknown and may be stored; nothing more is sent
// until it answers again.
func pausedBroker(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	send(t, s, messages("paused", "k", 3)...).want(outbox.ClassNone)
	testkit.Must(t, r.Broker.Pause())
	testkit.WaitFor(t, 10*time.Second, "the probe to notice the pause", func() bool { return s.Probe(t.Context()) != nil })
	head := send(t, s, messages("paused", "k", 3)...)
	head.want(outbox.ClassUnknown)
	behind := send(t, s, messages("paused", "k", 3)...)
	behind.want(outbox.ClassOutage)
	testkit.Must(t, r.Broker.Resume())
	retried(t, s, append(head.messages, behind.messages...))
	copies := map[string]int{}
	for _, m := range readAll(t, r, "paused", 9) {
		copies[m.ID()]++
	}
	for _, m := range behind.messages {
		if copies[m.MessageID] != 1 {
			t.Errorf("a message that was not taken is stored %d times", copies[m.MessageID])
		}
	}
}

func nameServerDown(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	testkit.Must(t, r.Names.Kill())
	send(t, s, messages("orders", "k", 3)...).want(outbox.ClassNone)
	send(t, s, messages("fresh", "k", 3)...).want(outbox.ClassOutage)
	testkit.Must(t, s.Probe(t.Context()))
	testkit.Must(t, r.Names.Start(t.Context()))
}
