package rocketmq

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"github.com/canal-outbox/canal-outbox/sink/sinktest"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

// libraryLeaks: after Shutdown the library's goroutines end by themselves, after up to 10 s (start-up timers) or 45 s (the
// name server connection, which it never closes). All of them run under this function.
var libraryLeaks = goleak.IgnoreAnyFunction("github.com/apache/rocketmq-client-go/v2/primitive.WithRecover")

func newSink(nameServer string, change func(*Section)) func(testing.TB) sink.Sink {
	return func(t testing.TB) sink.Sink {
		cfg := Section{NameServers: []string{nameServer}}
		if change != nil {
			change(&cfg)
		}
		s, err := open(cfg, nil, zap.NewNop(), prometheus.NewRegistry())
		testkit.Must(t, err)
		return s
	}
}

// asStored separates the sink's headers from the row's own.
func asStored(topic string, queue int32, offset int64, body []byte, properties map[string]string) sinktest.Stored {
	s := sinktest.Stored{Topic: topic, Partition: queue, Offset: offset, Body: body, MessageID: properties["UNIQ_KEY"], Tag: properties["TAGS"]}
	_, s.Key, _ = strings.Cut(properties["KEYS"], " ")
	for name, value := range properties {
		switch {
		case reserved[name], name == propertyBizType, name == propertyCreated:
		default:
			s.Headers = append(s.Headers, outbox.Header{Name: name, Value: value})
		}
	}
	return s
}

var topicNumber atomic.Int64

func TestConformanceOnTheFake(t *testing.T) {
	c := newCluster(t)
	b := c.brokers["broker-a"]
	c.scripted("broker-a", func(r request) reply {
		for _, m := range r.messages {
			if strings.Contains(m.body, "only the broker sees") {
				return reply{code: remoting.Illegal, remark: "the message is illegal"}
			}
		}
		return reply{}
	})
	sinktest.Run(t, sinktest.Harness{
		New: newSink(c.names.addr, func(cfg *Section) { cfg.MaxMessageBytes = 100_000 }),
		Topic: func(testing.TB) string {
			name := fmt.Sprint("topic-", topicNumber.Add(1))
			c.topic(name)
			return name
		},
		Read: func(_ testing.TB, topic string) []sinktest.Stored {
			var list []sinktest.Stored
			for _, m := range c.stored(topic) {
				list = append(list, asStored(topic, int32(m.queue), int64(m.offset), []byte(m.body), m.properties))
			}
			sort.Slice(list, func(i, j int) bool { return list[i].Offset < list[j].Offset })
			return list
		},
		Partitions: 4, MaxBytes: 100_000, IllegalTopic: "a.b", UnknownTopic: "no-such-topic",
		RefusesEmpty: true,
		Poison:       func(m *outbox.Message) { m.Body = []byte("only the broker sees") },
		Stop:         func(testing.TB) { b.stop() },
		Start:        func(testing.TB) { b.start() },
		Leaks: []goleak.Option{
			libraryLeaks,
			goleak.IgnoreAnyFunction("github.com/canal-outbox/canal-outbox/sink/rocketmq.(*fakeServer).start.func1"),
			goleak.IgnoreAnyFunction("github.com/canal-outbox/canal-outbox/sink/rocketmq.(*fakeServer).serve"),
		},
	})
}

func TestConformanceOnRocketMQ(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	// The broker's limit is below ours, so that only the broker refuses some messages.
	const ours, theirs = 300_000, 200_000
	r := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Config: map[string]string{
		"maxMessageSize": fmt.Sprint(theirs), "waitTimeMillsInSendQueue": patientBroker["waitTimeMillsInSendQueue"],
	}})
	sinktest.Run(t, sinktest.Harness{
		New: newSink(r.NameServer(), func(cfg *Section) { cfg.MaxMessageBytes = ours }),
		Topic: func(t testing.TB) string {
			name := fmt.Sprint("topic-", topicNumber.Add(1))
			createTopic(t, r, name, 4)
			return name
		},
		Read:       func(t testing.TB, topic string) []sinktest.Stored { return readSettled(t, r, topic) },
		Partitions: 4, MaxBytes: theirs, IllegalTopic: "a.b", UnknownTopic: "no-such-topic",
		RefusesEmpty: true,
		Poison:       func(m *outbox.Message) { m.Body = []byte(strings.Repeat("p", theirs+1)) },
		Stop:         func(t testing.TB) { testkit.Must(t, r.Broker.Kill()) },
		Start:        func(t testing.TB) { testkit.Must(t, r.Broker.Start(t.Context())) },
		Leaks:        []goleak.Option{libraryLeaks, testkit.IgnoreServers()},
	})
}

func createTopic(t testing.TB, r *testkit.RocketMQ, name string, queues int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	testkit.Must(t, r.CreateTopic(ctx, name, queues))
}

// readSettled reads a topic when the broker has filled its queues, which happens shortly after the acknowledgement: a message
// at the end of the log, sent after all others, shows that it has.
func readSettled(t testing.TB, r *testkit.RocketMQ, topic string) []sinktest.Stored {
	t.Helper()
	marker := fmt.Sprint("marker-", topicNumber.Add(1))
	createTopic(t, r, marker, 1)
	s := startSink(t, Section{NameServers: []string{r.NameServer()}})
	send(t, s, message(marker, "k")).want(outbox.ClassNone)
	testkit.Must(t, s.Close(t.Context()))
	read := func(topic string) []testkit.RocketMQMessage {
		list, err := testkit.ReadRocketMQTopic(t.Context(), r.NameServer(), topic)
		testkit.Must(t, err)
		return list
	}
	testkit.WaitFor(t, 10*time.Second, "the broker's queues", func() bool { return len(read(marker)) == 1 })
	var list []sinktest.Stored
	for _, m := range read(topic) {
		list = append(list, asStored(topic, int32(m.QueueID), m.QueueOffset, m.Body, m.Properties))
	}
	return list
}
