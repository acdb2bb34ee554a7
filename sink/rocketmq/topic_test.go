package rocketmq

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// B14: a missing topic is never created, its neighbours are published, and it works without a restart once it exists.
func TestB14_UnknownTopicThenCreated(t *testing.T) {
	c, s := newOrders(t)
	c.topic("TBW102")
	missing, neighbours := send(t, s, messages("missing", "k", 3)...), send(t, s, messages("orders", "k", 3)...)
	neighbours.want(outbox.ClassNone)
	missing.want(outbox.ClassTopic)
	for range 50 { // the failure is remembered for a while
		send(t, s, message("missing", "k")).want(outbox.ClassTopic)
	}
	c.mu.Lock()
	if n := c.asked["missing"]; n > 10 || c.asked["TBW102"] > 0 {
		t.Errorf("the missing topic was looked up %d times, the template %d times", n, c.asked["TBW102"])
	}
	c.mu.Unlock()
	c.topic("missing")
	testkit.WaitFor(t, 10*time.Second, "the new topic", func() bool {
		return send(t, s, message("missing", "k")).wait()[0].Class == outbox.ClassNone
	})
}

func TestTopicOfOneBatchWithoutAnyBroker(t *testing.T) {
	c := newCluster(t)
	s := newTestSink(t, c)
	c.mu.Lock()
	brokers := c.brokers
	c.brokers = nil
	c.mu.Unlock()
	o := send(t, s, message("orders", "k")).want(outbox.ClassOutage)[0]
	if !strings.Contains(o.Reason, "no broker is registered") {
		t.Errorf("reason %q", o.Reason)
	}
	if _, err := s.Topics(t.Context(), []string{"orders"}); err == nil {
		t.Error("Topics got no answer and returns no error")
	}
	c.mu.Lock()
	c.brokers = brokers
	c.mu.Unlock()
}

func TestReadOnlyTopic(t *testing.T) {
	c := newCluster(t)
	c.topic("frozen", fakeQueues{"broker-a", 4, 4})
	s := newTestSink(t, c)
	send(t, s, message("frozen", "k")).want(outbox.ClassTopic)
	faults, err := s.Topics(t.Context(), []string{"frozen"})
	if err != nil || !strings.Contains(fmt.Sprint(faults["frozen"]), "permission") {
		t.Errorf("%v, %v", faults, err)
	}
}

func TestNameServerRefusesTheClient(t *testing.T) {
	for text, want := range map[string]outbox.Class{
		"User:relay is not found.":                            outbox.ClassService,
		"User:relay has no permission to access Topic:orders": outbox.ClassTopic,
	} {
		c := newCluster(t)
		c.topic("orders")
		c.nameReply = func(string) *reply { return &reply{code: remoting.NoPermission, remark: text} }
		send(t, newTestSink(t, c), message("orders", "k")).want(want)
	}
}

// Known topics work without name servers; unknown ones wait for them as in an outage, not as missing topics.
func TestNameServersDown(t *testing.T) {
	c, s := newOrders(t)
	c.topic("later")
	send(t, s, message("orders", "k")).want(outbox.ClassNone)
	c.names.stop()
	send(t, s, messages("orders", "k", 10)...).want(outbox.ClassNone)
	send(t, s, message("later", "k")).want(outbox.ClassOutage)
	send(t, s, message("a.b", "k")).want(outbox.ClassPermanent)
	if _, err := s.Topics(t.Context(), []string{"orders"}); err == nil {
		t.Error("Topics got no answer and returns no error")
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Errorf("the broker answers, but Probe says %v", err)
	}
	c.names.start()
	retried(t, s, messages("later", "k", 3))
}

// The second name server is used when the first is away or frozen; names are resolved.
func TestSecondNameServer(t *testing.T) {
	c, gone := newCluster(t), newCluster(t)
	c.topic("orders")
	gone.names.freeze()
	_, port, _ := strings.Cut(c.names.addr, ":")
	s := startSink(t, Section{NameServers: []string{gone.names.addr, "localhost:" + port}})
	retried(t, s, messages("orders", "k", 3))
}

// keyFor returns a key whose queue has that index among n.
func keyFor(index, n uint32) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key-", i); hash(key)%n == index {
			return key
		}
	}
}

// look makes the sink look up all its topics again.
func look(s *Sink) { s.topics.refresh(s.brokers.ctx, true) }

// B17: the list is sorted, so the name server's order does not matter.
func TestB17_MappingIsStable(t *testing.T) {
	c := newCluster(t, "broker-a", "broker-b")
	a, b := fakeQueues{"broker-a", 2, 6}, fakeQueues{"broker-b", 2, 6}
	c.topic("orders", a, b)
	s := newTestSink(t, c)
	key := keyFor(2, 4)
	for _, order := range [][]fakeQueues{{a, b}, {b, a}, {a, b}} {
		c.topic("orders", order...)
		look(s)
		send(t, s, messages("orders", key, 3)...).want(outbox.ClassNone)
	}
	if n := len(c.brokers["broker-b"].store["orders"]); n != 9 {
		t.Errorf("%d of 9 messages of a key are in its queue", n)
	}
}

// B17: lost queues keep their keys for a while, messages without a key go elsewhere, and the return changes nothing.
func TestB17_BrokerLeavesAndReturns(t *testing.T) {
	c := newCluster(t, "broker-a", "broker-b")
	a, b := fakeQueues{"broker-a", 2, 6}, fakeQueues{"broker-b", 2, 6}
	c.topic("orders", a, b)
	s := newTestSink(t, c)
	onA, onB := keyFor(0, 4), keyFor(2, 4)
	send(t, s, message("orders", onA), message("orders", onB)).want(outbox.ClassNone)
	c.brokers["broker-b"].stop()
	c.topic("orders", a)
	testkit.WaitFor(t, 10*time.Second, "the loss to be noticed", func() bool {
		return send(t, s, message("orders", onB)).wait()[0].Class == outbox.ClassOutage
	})
	look(s)
	send(t, s, messages("orders", onA, 3)...).want(outbox.ClassNone)
	send(t, s, messages("orders", "", 1000)...).want(outbox.ClassNone)
	send(t, s, messages("orders", onB, 3)...).want(outbox.ClassOutage)
	c.brokers["broker-b"].start()
	c.topic("orders", a, b)
	look(s)
	retried(t, s, messages("orders", onB, 3))
	for _, m := range c.brokers["broker-a"].store["orders"] {
		if m.properties["SHARDING_KEY"] == onB {
			t.Fatal("a key moved while its broker was away")
		}
	}
}

// B17: a lasting loss is accepted, and a longer list is used at once, but never while messages are in flight.
func TestB17_ChangedListIsUsedWhenNothingIsOutstanding(t *testing.T) {
	c, s := newOrders(t)
	c.topic("orders", fakeQueues{"broker-a", 2, 6})
	hold := make(chan struct{})
	c.scripted("broker-a", func(r request) reply {
		if r.messages[0].body == "held" {
			return reply{hang: hold}
		}
		return reply{}
	})
	s.topics.mu.Lock()
	s.topics.patience = 0
	s.topics.mu.Unlock()
	key := keyFor(0, 2)
	for hash(key)%4 == 0 {
		key += "!"
		if hash(key)%2 != 0 {
			key += "."
		}
	}
	first := message("orders", key)
	first.Body = []byte("held")
	head := send(t, s, first)
	b := c.brokers["broker-a"]
	c.until(t, "the first request", func() bool { return len(b.requests) == 1 })
	c.topic("orders", fakeQueues{"broker-a", 4, 6})
	look(s)
	behind := send(t, s, messages("orders", key, 5)...)
	s.topics.mu.Lock()
	waiting := len(s.topics.byName["orders"].waiting)
	s.topics.mu.Unlock()
	if waiting != 5 {
		t.Fatalf("%d of 5 messages wait for the new list", waiting)
	}
	close(hold)
	head.want(outbox.ClassNone)
	behind.want(outbox.ClassNone)
	queues := []int{}
	for _, m := range c.stored("orders") {
		queues = append(queues, m.queue)
	}
	was, is := int(hash(key)%2), int(hash(key)%4)
	if !slices.Equal(queues, []int{was, is, is, is, is, is}) {
		t.Errorf("queues %v, want one message in %d and the rest in %d", queues, was, is)
	}
	c.topic("orders", fakeQueues{"broker-a", 1, 6})
	look(s)
	send(t, s, messages("orders", key, 3)...).want(outbox.ClassNone)
	if m := c.stored("orders"); m[len(m)-1].queue != 0 {
		t.Errorf("after the loss was accepted a message went to queue %d", m[len(m)-1].queue)
	}
}

// A topic that has fewer queues now than in our route is no fault of the message.
func TestQueueIsGone(t *testing.T) {
	c, s := newOrders(t)
	c.topic("orders", fakeQueues{"broker-a", 4, 6})
	c.scripted("broker-a", func(r request) reply {
		if r.queue > 1 {
			return reply{code: remoting.BadParameter, remark: fmt.Sprintf("request queueId[%d] is illegal, TopicConfig", r.queue)}
		}
		return reply{}
	})
	s.topics.mu.Lock()
	s.topics.patience = 0
	s.topics.mu.Unlock()
	key := keyFor(3, 4)
	c.mu.Lock()
	c.topics["orders"] = []fakeQueues{{"broker-a", 4, 6}}
	c.mu.Unlock()
	send(t, s, message("orders", key)).want(outbox.ClassOutage)
	c.topic("orders", fakeQueues{"broker-a", 2, 6})
	retried(t, s, messages("orders", key, 3))
}
