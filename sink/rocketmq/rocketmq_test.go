package rocketmq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// newTestSink starts a sink on a fake cluster and closes it at the end of the test.
func newTestSink(t testing.TB, c *cluster, change ...func(*Section)) *Sink {
	t.Helper()
	cfg := Section{NameServers: []string{c.names.addr}}
	for _, f := range change {
		f(&cfg)
	}
	return startSink(t, cfg)
}

// newOrders starts a cluster with the topic orders, and a sink on it.
func newOrders(t testing.TB, change ...func(*Section)) (*cluster, *Sink) {
	t.Helper()
	c := newCluster(t)
	c.topic("orders")
	return c, newTestSink(t, c, change...)
}

func startSink(t testing.TB, cfg Section, may ...func() bool) *Sink {
	t.Helper()
	s, err := open(cfg, slices.Concat(may, []func() bool{nil})[0], zap.NewNop(), prometheus.NewRegistry())
	testkit.Must(t, err)
	t.Cleanup(func() {
		s.topics.mu.Lock()
		closed := s.topics.closed
		s.topics.mu.Unlock()
		if closed {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

var serial int

func message(topic, key string) *outbox.Message {
	serial++
	id := fmt.Sprint(serial)
	return &outbox.Message{
		Identity: outbox.Identity{Table: "shop.t_local_message", ID: id, MessageID: "order:" + id},
		Topic:    topic, Key: key, ShardingKey: key, Body: []byte("body " + id), Partition: outbox.NoPartition, MaxRetry: -1,
	}
}

func messages(topic, key string, n int) []*outbox.Message {
	list := make([]*outbox.Message, n)
	for i := range list {
		list[i] = message(topic, key)
	}
	return list
}

// pending collects the results of one Send.
type pending struct {
	t        testing.TB
	messages []*outbox.Message
	mu       sync.Mutex
	results  map[*outbox.Message]outbox.Outcome
	done     chan struct{}
}

func send(t testing.TB, s *Sink, messages ...*outbox.Message) *pending {
	p := &pending{t: t, messages: slices.Clone(messages), results: map[*outbox.Message]outbox.Outcome{}, done: make(chan struct{})}
	s.Send(messages, func(results []sink.Result) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range results {
			if _, twice := p.results[r.Message]; twice {
				t.Errorf("message %s has two results", r.Message.MessageID)
			}
			p.results[r.Message] = r.Outcome
		}
		if len(p.results) == len(p.messages) {
			close(p.done)
		}
	})
	return p
}

// wait returns the outcomes in the order of the messages.
func (p *pending) wait() []outbox.Outcome {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(3 * time.Minute):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Fatalf("%d of %d messages have a result", len(p.results), len(p.messages))
	}
	list := make([]outbox.Outcome, len(p.messages))
	for i, m := range p.messages {
		list[i] = p.results[m]
	}
	return list
}

// want waits and checks that every message has the class.
func (p *pending) want(class outbox.Class) []outbox.Outcome {
	p.t.Helper()
	list := p.wait()
	for i, o := range list {
		if o.Class != class || (o.Reason == "") != (class == outbox.ClassNone) {
			p.t.Fatalf("message %d of %d: class %s (%s), want %s", i, len(list), o.Class, o.Reason, class)
		}
	}
	return list
}

// A queue has one request in flight; messages that arrive meanwhile form the next batch; other queues do not wait.
func TestBatchesFormWhileARequestIsInFlight(t *testing.T) {
	c, s := newOrders(t)
	hold := make(chan struct{})
	c.scripted("broker-a", func(r request) reply {
		if r.messages[0].body == "first" {
			return reply{hang: hold}
		}
		return reply{}
	})
	first := message("orders", "k")
	first.Body = []byte("first")
	head := send(t, s, first)
	b := c.brokers["broker-a"]
	c.until(t, "the first request", func() bool { return len(b.requests) == 1 })
	var rest []*pending
	for range 700 {
		rest = append(rest, send(t, s, message("orders", "k")))
	}
	other := message("orders", "another key")
	for hash(other.ShardingKey)%4 == hash("k")%4 {
		other.ShardingKey += "!"
	}
	send(t, s, other).want(outbox.ClassNone)
	close(hold)
	head.want(outbox.ClassNone)
	for _, p := range rest {
		p.want(outbox.ClassNone)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.crowded {
		t.Error("a queue had two requests in flight")
	}
	var sizes []int
	for _, r := range b.requests {
		sizes = append(sizes, len(r.messages))
	}
	if !slices.Equal(sizes, []int{1, 1, 256, 256, 188}) {
		t.Errorf("request sizes %v", sizes)
	}
}

func TestMessagesWithoutKeyAreSpreadInRuns(t *testing.T) {
	c, s := newOrders(t)
	for range 8 { // one at a time: an idle queue passes to the next
		send(t, s, message("orders", "")).want(outbox.ClassNone)
		testkit.WaitFor(t, 10*time.Second, "the queue to be idle", func() bool {
			s.topics.mu.Lock()
			defer s.topics.mu.Unlock()
			return s.topics.outstanding == 0
		})
	}
	perQueue := func() map[int]int {
		count := map[int]int{}
		for _, m := range c.stored("orders") {
			count[m.queue]++
		}
		return count
	}
	if got := perQueue(); len(got) != 4 || got[0] != 2 || got[3] != 2 {
		t.Errorf("8 single messages went to %v", got)
	}
	send(t, s, messages("orders", "", 1024)...).want(outbox.ClassNone)
	if got := perQueue(); got[0] != 258 || got[1] != 258 || got[2] != 258 || got[3] != 258 {
		t.Errorf("1032 messages went to %v", got)
	}
	if n := len(c.brokers["broker-a"].requests); n > 8+8 {
		t.Errorf("1024 messages at once took %d requests", n-8)
	}
}

func TestRequestsStayBelowTheByteLimit(t *testing.T) {
	c, s := newOrders(t)
	list := messages("orders", "k", 20)
	for _, m := range list {
		m.Body = []byte(strings.Repeat("x", 200_000))
	}
	list[10].Body = []byte(strings.Repeat("y", 2_000_000))
	send(t, s, list...).want(outbox.ClassNone)
	for _, r := range c.brokers["broker-a"].requests {
		size := 0
		for _, m := range r.messages {
			size += len(m.body)
		}
		if size > batchBytes && len(r.messages) > 1 {
			t.Errorf("a request has %d bytes in %d messages", size, len(r.messages))
		}
	}
	for i, m := range c.stored("orders") {
		if m.properties["UNIQ_KEY"] != list[i].MessageID {
			t.Fatalf("message %d of the queue is %s", i, m.properties["UNIQ_KEY"])
		}
	}
}

func TestSectionNamesEveryFault(t *testing.T) {
	var faults []string
	report := setting.NewReport(func(path, value, reason string) { faults = append(faults, path+"="+value+" "+reason) })
	(&Section{NameServers: []string{"nowhere"}, Group: "a b", AccessKey: "x", MaxMessageBytes: 1 << 30, Durability: "some"}).Validate(report)
	text := strings.Join(faults, "\n")
	for _, want := range []string{"nowhere", "group=a b", "access_key and secret_key", "max_message_bytes=1GiB", "durability=some"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}
