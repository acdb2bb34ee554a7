package kafka

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// B30: a broker that answers other requests but not produce requests counts as away, also when the client repeats the request; an
// answer to a produce request makes it available.
func TestB30_ProduceRequestsWithoutAnswer(t *testing.T) {
	f := newFake(t)
	s := newSink(t, f.Addr())
	topic := createTopic(t, f.Addr(), nil)
	probe := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return s.Probe(ctx)
	}
	var results atomic.Int32
	publish := func() {
		m := &outbox.Message{Identity: outbox.Identity{MessageID: "m"}, Topic: topic, Key: "k", ShardingKey: "k", Body: []byte("b"), Partition: outbox.NoPartition}
		s.Send([]*outbox.Message{m}, func(r []sink.Result) {
			if r[0].Class != outbox.ClassNone {
				t.Errorf("class %s: %s", r[0].Class, r[0].Reason)
			}
			results.Add(1)
		})
	}
	publish()
	testkit.WaitFor(t, 10*time.Second, "the first answer", func() bool { return results.Load() == 1 })

	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true }) // of one request
	publish()
	testkit.WaitFor(t, 15*time.Second, "the probe to say so", func() bool {
		err := probe()
		return err != nil && strings.Contains(err.Error(), "no produce request")
	})
	testkit.WaitFor(t, 40*time.Second, "the second answer", func() bool { return results.Load() == 2 })
	if err := probe(); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}

// A produce request that the client repeats after its time-out is no answer to the first one.
func TestUnansweredSinceTheFirstRequest(t *testing.T) {
	var u unanswered
	broker, produce := kgo.BrokerMetadata{NodeID: 1}, int16(kmsg.Produce)
	waits := func() bool { _, overdue := u.overdue(1, 0); return overdue }
	u.OnBrokerWrite(broker, int16(kmsg.Metadata), 0, 0, 0, nil)
	u.OnBrokerWrite(broker, produce, 0, 0, 0, errors.New("broken pipe"))
	if waits() {
		t.Error("it owes an answer to a produce request that was not written")
	}
	u.OnBrokerWrite(broker, produce, 0, 0, 0, nil)
	first := u.since[1]
	u.OnBrokerRead(broker, int16(kmsg.Metadata), 0, 0, 0, nil)
	u.OnBrokerRead(broker, produce, 0, 0, 0, errors.New("timed out"))
	u.OnBrokerWrite(broker, produce, 0, 0, 0, nil)
	if !waits() || u.since[1] != first {
		t.Errorf("owed since %s, want %s", u.since[1], first)
	}
	u.OnBrokerRead(broker, produce, 0, 0, 0, nil)
	if waits() {
		t.Error("an answered request is owed still")
	}
}
