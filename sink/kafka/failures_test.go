package kafka

import (
	"bytes"
	"context"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestB32_OnePoisonAmong999(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr())
	fault := f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Err: kerr.InvalidRecord, Count: -1, When: holds("poison")})
	all := messages(topic, 1000)
	all[500].Body = []byte("poison")
	results := publish(t, s, all...)
	wantClass(t, outbox.ClassPermanent, results[500])
	wantClass(t, outbox.ClassNone, append(results[:500:500], results[501:]...)...)
	n := copies(t, f.Addr(), topic)
	if len(n) != 999 {
		t.Errorf("%d messages are stored", len(n))
	}
	for id, n := range n {
		if n != 1 {
			t.Errorf("message %s is stored %d times", id, n)
		}
	}
	if fault.Hits() < 2 {
		t.Errorf("the broker refused %d times: the poison was not tried alone", fault.Hits())
	}
}

// holds selects produce requests with these bytes in a record.
func holds(text string) func(kmsg.Request) bool {
	return func(req kmsg.Request) bool {
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range t.Partitions {
				if bytes.Contains(p.Records, []byte(text)) {
					return true
				}
			}
		}
		return false
	}
}

// Messages of a topic that arrive while its refused batches are sent one by one stay behind them.
func TestB32_LaterMessagesStayBehind(t *testing.T) {
	f := newFake(t, kfake.SleepOutOfOrder())
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr())
	main := int64(-1) // the producer id of the main client: its first batches are refused, whatever their content
	release := make(chan struct{})
	f.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if batch := firstBatch(t, req); main == -1 {
			main = batch.ProducerID
		} else if batch.ProducerID != main { // an isolated one: it waits until all are refused
			f.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Err: kerr.InvalidRecord, Count: -1, When: func(req kmsg.Request) bool {
		batch := firstBatch(t, req)
		return batch.ProducerID == main && bytes.Contains(batch.Records, []byte("first"))
	}})
	all := messages(topic, 600)
	for _, m := range all[:300] {
		m.Body = []byte("first")
	}
	in := newInbox(t)
	s.Send(append([]*outbox.Message(nil), all[:300]...), in.done)
	testkit.WaitFor(t, patience, "all to be refused", func() bool { return s.isolation.count.Load() == 300 })
	s.Send(append([]*outbox.Message(nil), all[300:]...), in.done)
	close(release)
	wantClass(t, outbox.ClassNone, in.wait(all...)...)
	offsets := map[string]int64{}
	for _, m := range stored(t, f.Addr(), topic) {
		offsets[m.MessageID] = m.Offset
	}
	// The first ones were in several requests on the wire, which may be refused in another order than they were sent. Messages
	// that came after the refusal stay behind all of them and in order.
	last := int64(-1)
	for _, m := range all[:300] {
		last = max(last, offsets[m.MessageID])
	}
	for _, m := range all[300:] {
		if offsets[m.MessageID] <= last {
			t.Fatalf("message %s at offset %d overtook one at %d", m.MessageID, offsets[m.MessageID], last)
		}
		last = offsets[m.MessageID]
	}
}

func firstBatch(t *testing.T, req kmsg.Request) (batch kmsg.RecordBatch) {
	if err := batch.ReadFrom(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records); err != nil {
		t.Error(err)
	}
	return batch
}

func TestB34_TopicCreatedLater(t *testing.T) {
	f := newFake(t)
	s := newSink(t, f.Addr())
	all := messages("made.later", 10)
	wantClass(t, outbox.ClassTopic, publish(t, s, all...)...)
	makeTopic(t, f.Addr(), "made.later", nil)
	testkit.WaitFor(t, patience, "the topic to work", func() bool { return publish(t, s, all[0])[0].Class == outbox.ClassNone })
	wantClass(t, outbox.ClassNone, publish(t, s, all[1:]...)...)
}

func TestB35_TopicRecreatedUnderLoad(t *testing.T) {
	f := newFake(t)
	s := newSink(t, f.Addr())
	topic := createTopic(t, f.Addr(), nil)
	all := messages(topic, 200)
	wantClass(t, outbox.ClassNone, publish(t, s, all...)...)
	admin(t, f.Addr(), func(ctx context.Context, a *kadm.Client) error {
		_, err := a.DeleteTopic(ctx, topic)
		return err
	})
	makeTopic(t, f.Addr(), topic, nil)
	testkit.WaitFor(t, patience, "the new topic to work", func() bool {
		for _, r := range publish(t, s, all...) {
			switch r.Class {
			case outbox.ClassNone, outbox.ClassTopic, outbox.ClassUnknown, outbox.ClassOutage:
			default:
				t.Fatalf("class %s (%s)", r.Class, r.Reason)
			}
			if r.Class != outbox.ClassNone {
				return false
			}
		}
		return true
	})
	if n := copies(t, f.Addr(), topic); len(n) != len(all) {
		t.Errorf("%d of %d messages are in the new topic", len(n), len(all))
	}
	before := count(t, s.metrics.sentAlone)
	wantClass(t, outbox.ClassNone, publish(t, s, all...)...)
	if after := count(t, s.metrics.sentAlone); after != before {
		t.Errorf("%v messages still take the long way", after-before)
	}
}

func count(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// B30: the broker receives requests and never answers, as behind a network that drops packets.
func TestB30_CloseWhenEveryReplyIsSwallowed(t *testing.T) {
	for _, c := range []struct {
		name string
		keys []int16
	}{{"produce", []int16{int16(kmsg.Produce)}}, {"everything", nil}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, kfake.SleepOutOfOrder())
			s := newSink(t, f.Addr(), func(c *config) { c.times = patient })
			topic := createTopic(t, f.Addr(), nil)
			wantClass(t, outbox.ClassNone, publish(t, s, messages(topic, 1)...)...)
			release, asked := make(chan struct{}), make(chan struct{}, 1)
			swallow := func(kmsg.Request) (kmsg.Response, error, bool) {
				f.KeepControl()
				signal(asked)
				f.SleepControl(func() { <-release })
				return nil, nil, false
			}
			defer close(release)
			if c.keys == nil {
				f.Control(swallow)
			}
			for _, key := range c.keys {
				f.ControlKey(key, swallow)
			}
			all := messages(topic, 100)
			in := newInbox(t)
			s.Send(append([]*outbox.Message(nil), all...), in.done)
			<-asked
			closeSilent(t, s)
			wantClass(t, outbox.ClassUnknown, in.have(all)...)
			if n := len(in.have(all)); n != len(all) {
				t.Errorf("%d of %d messages have a result when Close returns", n, len(all))
			}
		})
	}
}

// B30: the same while a refused batch is being sent one by one.
func TestB30_CloseDuringIsolation(t *testing.T) {
	f := newFake(t, kfake.SleepOutOfOrder())
	s := newSink(t, f.Addr(), func(c *config) { c.times = patient })
	topic := createTopic(t, f.Addr(), nil)
	release, swallowed := make(chan struct{}), make(chan struct{}, 1)
	defer close(release)
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { // the first passes, then none
		f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			signal(swallowed)
			f.SleepControl(func() { <-release })
			return nil, nil, false
		})
		return nil, nil, false
	})
	f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Err: kerr.InvalidRecord, Count: 1})
	all := messages(topic, 50)
	in := newInbox(t)
	s.Send(append([]*outbox.Message(nil), all...), in.done)
	<-swallowed
	closeSilent(t, s)
	wantClass(t, outbox.ClassUnknown, in.have(all)...)
	if n := len(in.have(all)); n != len(all) {
		t.Errorf("%d of %d messages have a result when Close returns", n, len(all))
	}
}

// B36: a receiver of results that blocks does not stop the client: its buffers empty, and further messages are sent.
func TestB36_SlowReceiver(t *testing.T) {
	f := newFake(t)
	s := newSink(t, f.Addr(), func(c *config) { c.limits.Messages = 100 })
	topic := createTopic(t, f.Addr(), nil)
	all := messages(topic, 501)
	release, blocked := make(chan struct{}), make(chan struct{})
	in := newInbox(t)
	s.Send([]*outbox.Message{all[0]}, func(r []sink.Result) {
		close(blocked)
		<-release
		in.done(r)
	})
	<-blocked
	for from := 1; from < len(all); from += 50 {
		s.Send(append([]*outbox.Message(nil), all[from:from+50]...), in.done)
		testkit.WaitFor(t, patience, "the messages to be stored", func() bool { return len(copies(t, f.Addr(), topic)) == from+50 })
	}
	close(release)
	wantClass(t, outbox.ClassNone, in.wait(all...)...)
}

// B37: messages beyond the buffers are returned, and Send does not wait.
func TestB37_BuffersAreBounded(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	s := newSink(t, f.Addr(), func(c *config) { c.limits.Messages = 100 })
	f.Stop()
	all := messages(topic, 1000)
	in := newInbox(t)
	s.Send(append([]*outbox.Message(nil), all...), in.done)
	testkit.WaitFor(t, patience, "results of what was beyond the limit", func() bool { return len(in.have(all)) >= 800 })
	wantClass(t, outbox.ClassOutage, in.have(all)...)
	testkit.Must(t, f.Start())
	results := in.wait(all...)
	sent := 0
	for _, r := range results {
		if r.Class == outbox.ClassNone {
			sent++
		}
	}
	if sent < 100 || sent > 200 {
		t.Errorf("%d messages were kept, the limit is 100 and a quarter", sent)
	}
}

// B38: a topic that accepts less than our batches loses nothing, and the log says so.
func TestB38_TopicWithALowerLimit(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), map[string]string{"max.message.bytes": "20000"})
	core, logs := observer.New(zap.WarnLevel)
	s, err := open(testConfig(f.Addr()), zap.New(core), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	all := messages(topic, 100)
	for _, m := range all {
		m.Body = make([]byte, 1000)
	}
	wantClass(t, outbox.ClassNone, publish(t, s, all...)...)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := copies(t, f.Addr(), topic); len(n) != len(all) {
		t.Errorf("%d of %d messages are stored", len(n), len(all))
	}
	if logs.FilterMessageSnippet("max.message.bytes").FilterField(zap.String("topic", topic)).Len() == 0 {
		t.Errorf("logged: %v", logs.All())
	}
}
