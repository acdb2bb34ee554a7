package rocketmq

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// swallowing makes the broker not answer requests with a message of this body; it counts the messages of each such request.
func (c *cluster) swallowing(broker, body string) func() []int {
	var sizes []int
	c.scripted(broker, func(r request) reply {
		for _, m := range r.messages {
			if m.body == body {
				c.mu.Lock()
				sizes = append(sizes, len(r.messages))
				c.mu.Unlock()
				return reply{swallow: true, code: remoting.Unavailable}
			}
		}
		return reply{}
	})
	return func() []int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return append([]int(nil), sizes...)
	}
}

// B30: a message that never gets an answer while the broker answers others affects no other message: neither its batch nor
// those behind it nor other keys, and the broker stays in use.
func TestB30_SilenceOfOneMessage(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	c := newCluster(t)
	c.topic("orders")
	s, err := open(Section{NameServers: []string{c.names.addr}}, nil, zap.New(core), prometheus.NewRegistry())
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, s.Close(context.Background())) })
	send(t, s, message("orders", "k")).want(outbox.ClassNone)
	requests := c.swallowing("broker-a", "poison")
	poison := message("orders", "k")
	poison.Body = []byte("poison")

	// The first request of an idle queue has one message; the next ones form the batch with the poison.
	first := send(t, s, append(messages("orders", "k", 10), append([]*outbox.Message{poison}, messages("orders", "k", 10)...)...)...)
	others := neighbours(t, s, first)
	for i, o := range first.wait() {
		switch class := o.Class; {
		case i == 10 && (class != outbox.ClassUnknown || o.Scope != outbox.ScopeMessage):
			t.Errorf("the silent message came to %s with scope %s (%s)", class, o.Scope, o.Reason)
		case i != 10 && class != outbox.ClassNone:
			t.Errorf("message %d of its batch came to %s (%s)", i, class, o.Reason)
		}
	}
	t.Logf("%d messages of other keys meanwhile", others())

	// Sent again, it is sent alone from the start: the messages sent with it are answered at once.
	again := send(t, s, poison)
	send(t, s, messages("orders", "k", 5)...).want(outbox.ClassNone)
	select {
	case <-again.done:
		t.Error("messages behind the silent one had their answers after it")
	default:
	}
	for range 19 {
		send(t, s, messages("orders", "k", 5)...).want(outbox.ClassNone)
	}
	if o := again.wait()[0]; o.Class != outbox.ClassUnknown || o.Scope != outbox.ScopeMessage {
		t.Errorf("again it came to %s with scope %s (%s)", o.Class, o.Scope, o.Reason)
	}
	if sizes := fmt.Sprint(requests()); !strings.HasSuffix(sizes, " 1 1]") {
		t.Errorf("the requests with it had %s messages: the last two should be it alone", sizes)
	}
	if logs.FilterMessage("broker is away").Len() > 0 {
		t.Error("the broker was called away")
	}

	// Once it is answered it is an ordinary message.
	c.scripted("broker-a", func(request) reply { return reply{} })
	send(t, s, poison).want(outbox.ClassNone)
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	if n := len(s.alone.known); n > 0 {
		t.Errorf("%d messages are still suspect", n)
	}
}

// neighbours sends messages of other keys, one after the other, until the others have their results, and checks each.
func neighbours(t *testing.T, s *Sink, until *pending) (count func() int) {
	n, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-until.done:
				return
			default:
			}
			key := fmt.Sprint("other-", n)
			if n++; hash(key)%4 == hash("k")%4 {
				continue // of the poison's queue, where it would wait for the same silence
			}
			for _, o := range send(t, s, message("orders", key)).wait() {
				if o.Class != outbox.ClassNone {
					t.Errorf("a message of another key came to %s (%s)", o.Class, o.Reason)
				}
			}
		}
	}()
	return func() int { <-ended; return n }
}

// B30: a message of a request without an answer may be stored. When its broker goes away before the message is sent alone, it is
// not given back as one that was not sent.
func TestB30_SuspectsOfALostBrokerStayUncertain(t *testing.T) {
	c, s := newOrders(t)
	c.scripted("broker-a", func(r request) reply {
		return reply{swallow: r.messages[0].properties["SHARDING_KEY"] == keyFor(0, 4), store: true}
	})
	suspects := send(t, s, messages("orders", keyFor(0, 4), 20)...)
	testkit.WaitFor(t, time.Minute, "the messages to be suspects", func() bool {
		send(t, s, message("orders", keyFor(1, 4))).want(outbox.ClassNone) // the broker answers others
		s.alone.mu.Lock()
		defer s.alone.mu.Unlock()
		return len(s.alone.waiting) > 0
	})
	c.brokers["broker-a"].stop()
	suspects.want(outbox.ClassUnknown)
	c.brokers["broker-a"].start()
}

// B30: if no message is answered the broker is the cause, and no message, although it answers heartbeats.
func TestB30_SilenceTowardsAll(t *testing.T) {
	c, s := newOrders(t)
	c.topic("orders", fakeQueues{"broker-a", 32, 6})
	send(t, s, message("orders", "k")).want(outbox.ClassNone)
	c.scripted("broker-a", func(request) reply { return reply{swallow: true, code: remoting.Unavailable} })
	var all []*outbox.Message
	for i := range 8 {
		all = append(all, messages("orders", fmt.Sprint("key-", i), 3)...)
	}
	for _, o := range send(t, s, all...).want(outbox.ClassUnknown) {
		if o.Scope != outbox.ScopeCluster {
			t.Errorf("scope %s (%s)", o.Scope, o.Reason)
		}
	}
	c.scripted("broker-a", func(request) reply { return reply{} })
	send(t, s, all...).want(outbox.ClassNone)
}
