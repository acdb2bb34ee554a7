package rocketmq

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// twoBrokers is a cluster with a topic on two brokers, and a key for each.
func twoBrokers(t *testing.T) (c *cluster, s *Sink, onA, onB string) {
	c = newCluster(t, "broker-a", "broker-b")
	c.topic("orders", fakeQueues{"broker-a", 4, 6}, fakeQueues{"broker-b", 4, 6})
	return c, newTestSink(t, c), keyFor(0, 8), keyFor(4, 8)
}

// B03: one of two brokers is down: messages without a key are published, those of its keys are returned at once.
func TestB03_OneBrokerDown(t *testing.T) {
	c, s, onA, onB := twoBrokers(t)
	send(t, s, append(messages("orders", onA, 3), messages("orders", onB, 3)...)...).want(outbox.ClassNone)
	c.brokers["broker-b"].stop()
	testkit.WaitFor(t, 10*time.Second, "the loss to be noticed", func() bool {
		return send(t, s, message("orders", onB)).wait()[0].Class == outbox.ClassOutage
	})
	for range 20 {
		send(t, s, messages("orders", "", 50)...).want(outbox.ClassNone)
		send(t, s, messages("orders", onA, 5)...).want(outbox.ClassNone)
		for _, r := range send(t, s, messages("orders", onB, 5)...).want(outbox.ClassOutage) {
			if r.Scope != outbox.ScopePartition {
				t.Fatal("the outage of one broker is reported as one of all")
			}
		}
	}
	testkit.Must(t, s.Reachable(t.Context()))
	c.brokers["broker-a"].stop()
	if err := s.Reachable(t.Context()); err == nil {
		t.Error("brokers that are stopped are reachable")
	}
	testkit.WaitFor(t, 10*time.Second, "the loss of the other", func() bool {
		r := send(t, s, message("orders", onA)).wait()[0]
		return r.Class == outbox.ClassOutage && r.Scope != outbox.ScopePartition
	})
	c.brokers["broker-a"].start()
	c.brokers["broker-b"].start()
	retried(t, s, messages("orders", onB, 3))
}

// While the broker of the only topic in use is down, another one can be reached, and its topics can be read.
func TestABrokerWhoseTopicsAreNotUsedYetIsReachable(t *testing.T) {
	c, s, _, _ := twoBrokers(t)
	c.topic("payments", fakeQueues{"broker-b", 4, 6})
	send(t, s, message("payments", "")).want(outbox.ClassNone)
	c.brokers["broker-b"].stop()
	if err := s.Probe(t.Context()); err == nil {
		t.Error("the broker with topics in use answers")
	}
	testkit.Must(t, s.Reachable(t.Context()))
}

// B13: a broker that accepts connections and answers nothing costs its own messages one time-out; the others none.
func TestB13_FrozenBroker(t *testing.T) {
	c, s, onA, onB := twoBrokers(t)
	send(t, s, append(messages("orders", onA, 3), messages("orders", onB, 3)...)...).want(outbox.ClassNone)
	c.brokers["broker-b"].freeze()
	began := time.Now()
	stuck := send(t, s, messages("orders", onB, 3)...)
	send(t, s, messages("orders", onA, 5)...).want(outbox.ClassNone)
	select {
	case <-stuck.done:
		t.Error("the healthy broker's messages waited for the frozen one")
	default:
	}
	for range 99 {
		send(t, s, messages("orders", onA, 5)...).want(outbox.ClassNone)
	}
	stuck.want(outbox.ClassUnknown)
	timeout, least := time.Since(began), time.Hour
	for range 20 {
		began := time.Now()
		send(t, s, messages("orders", onB, 5)...).want(outbox.ClassOutage)
		least = min(least, time.Since(began))
		send(t, s, messages("orders", "", 5)...).want(outbox.ClassNone)
	}
	if least > timeout/10 { // a heartbeat takes a quarter of it, a request three quarters
		t.Errorf("messages for a broker that is away took %s or longer, with one time-out %s", least, timeout)
	}
	c.brokers["broker-b"].thaw()
	retried(t, s, messages("orders", onB, 3))
}

// B13: a broker that never answered is never passed to the library, which would dial it under its global lock.
func TestB13_UnreachableFromTheStart(t *testing.T) {
	c := newCluster(t, "broker-a", "broker-b")
	c.topic("orders", fakeQueues{"broker-a", 4, 6}, fakeQueues{"broker-b", 4, 6})
	c.brokers["broker-b"].freeze()
	s := newTestSink(t, c)
	send(t, s, messages("orders", keyFor(4, 8), 5)...).want(outbox.ClassOutage)
	send(t, s, messages("orders", keyFor(0, 8), 5)...).want(outbox.ClassNone)
	if n := len(c.brokers["broker-b"].requests); n > 0 {
		t.Errorf("%d requests went to it", n)
	}
}

func TestProbeNeedsAnAnswer(t *testing.T) {
	c, s := newOrders(t)
	b := c.brokers["broker-a"]
	probe := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return s.Probe(ctx)
	}
	for _, known := range []bool{false, true} {
		if known {
			send(t, s, message("orders", "k")).want(outbox.ClassNone)
		}
		if err := probe(); err != nil {
			t.Fatalf("known %v: %v", known, err)
		}
		b.freeze() // accepts the connection
		if err := probe(); err == nil {
			t.Errorf("known %v: a frozen broker passed", known)
		}
		b.thaw()
		b.stop()
		if err := probe(); err == nil {
			t.Errorf("known %v: a stopped broker passed", known)
		}
		b.start()
		if err := probe(); err != nil {
			t.Fatalf("known %v: %v", known, err)
		}
	}
	if n := len(b.requests); n > 1 {
		t.Errorf("probes sent %d messages", n-1)
	}
}

// B11: closing one sink does not affect another of the same process and cluster.
func TestB11_TwoProducers(t *testing.T) {
	c := newCluster(t)
	c.topic("orders")
	one, two := newTestSink(t, c), newTestSink(t, c)
	send(t, one, message("orders", "k")).want(outbox.ClassNone)
	send(t, two, message("orders", "k")).want(outbox.ClassNone)
	testkit.Must(t, one.Close(t.Context()))
	send(t, two, messages("orders", "k", 3)...).want(outbox.ClassNone)
	if err := one.Close(t.Context()); err == nil {
		t.Error("a second Close returns no error")
	}
}

// B12: outages leave no goroutines or connections.
func TestB12_OutagesLeaveNothingBehind(t *testing.T) {
	c, s := newOrders(t)
	send(t, s, message("orders", "k")).want(outbox.ClassNone)
	before := goleak.IgnoreCurrent()
	b := c.brokers["broker-a"]
	for range 10 {
		b.stop()
		send(t, s, messages("orders", "k", 3)...).wait()
		b.start()
		retried(t, s, messages("orders", "k", 3))
	}
	b.stop()
	own := goleak.IgnoreAnyFunction("github.com/canal-outbox/canal-outbox/sink/rocketmq.(*fakeServer).serve")
	recovering := goleak.IgnoreAnyFunction("github.com/canal-outbox/canal-outbox/sink/rocketmq.(*Sink).recover")
	testkit.Must(t, goleak.Find(before, own, recovering))
	b.start()
}

// B16: neither bodies nor headers nor credentials reach the log, whatever goes wrong.
func TestB16_NoBodiesInTheLog(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	c := newCluster(t)
	c.topic("orders")
	cfg := Section{NameServers: []string{c.names.addr}, AccessKey: "canary-access", SecretKey: setting.NewSecret("canary-secret")}
	s, err := open(cfg, nil, zap.New(core), prometheus.NewRegistry())
	testkit.Must(t, err)
	canary := func() []*outbox.Message {
		list := messages("orders", "canary-key", 3)
		for _, m := range list {
			m.Body, m.Tag = []byte("canary-body"), "canary-tag"
			m.Headers = []outbox.Header{{Name: "h", Value: "canary-header"}}
		}
		return list
	}
	for _, r := range []reply{{}, {code: remoting.Illegal}, {code: remoting.SystemError}, {code: remoting.NoTopic}, {cut: true}, {swallow: true}} {
		c.scripted("broker-a", func(request) reply { return r })
		testkit.WaitFor(t, 10*time.Second, "the broker to be back", func() bool { return s.Probe(t.Context()) == nil })
		send(t, s, canary()...).wait()
	}
	c.brokers["broker-a"].stop()
	send(t, s, canary()...).wait()
	c.brokers["broker-a"].start()
	rlog.Error("send failed", map[string]any{"messages": "canary-body", "underlayError": "why"})
	testkit.Must(t, s.Close(t.Context()))
	if logs.FilterMessageSnippet("send failed").FilterField(zap.Any("underlayError", "why")).Len() != 1 {
		t.Error("the library's log does not arrive")
	}
	rlog.Error("written by what the library leaves behind", nil)
	if logs.FilterMessageSnippet("leaves behind").Len() != 0 {
		t.Error("the library writes to the log of a sink that is closed")
	}
	for _, entry := range logs.All() {
		if text := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(text, "canary") {
			t.Errorf("logged: %s", text)
		}
	}
}

// Our own requests are signed like the library's; the servers recompute the signature.
func TestRequestsAreSigned(t *testing.T) {
	c, s := newOrders(t, func(cfg *Section) { cfg.AccessKey, cfg.SecretKey = "relay", setting.NewSecret("secret") })
	send(t, s, message("orders", "k")).want(outbox.ClassNone)
	fields := c.brokers["broker-a"].fields[0]
	if fields["AccessKey"] != "relay" || fields["Signature"] == "" {
		t.Errorf("a send has the fields %v", fields)
	}
	if got, want := s.remote.Sign(map[string]string{"topic": "orders", "a": "1"}, []byte("body"))["Signature"], "F66hHgszsSflr823Qn/FOS9Z4OA="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

// B02: a write into a full connection ends after seconds too, not after the library's two minutes.
func TestB02_FullConnection(t *testing.T) {
	c, s := newOrders(t)
	c.topic("orders", fakeQueues{"broker-a", 32, 6})
	send(t, s, message("orders", "k")).want(outbox.ClassNone)
	c.brokers["broker-a"].freeze()
	for i, o := range send(t, s, largeMessages()...).wait() {
		if o.Class != outbox.ClassUnknown && o.Class != outbox.ClassOutage {
			t.Errorf("message %d: class %s (%s)", i, o.Class, o.Reason)
		}
	}
	c.brokers["broker-a"].thaw()
	retried(t, s, messages("orders", "k", 3))
}

// largeMessages are more bytes than the buffers of a connection hold.
func largeMessages() []*outbox.Message {
	list := messages("orders", "", 400)
	for i, m := range list {
		m.Body, m.ShardingKey = make([]byte, 100_000), fmt.Sprint("key-", i)
	}
	return list
}

// blockedWrites fills connections to a frozen server one after the other, each until the limit of a write; the channel is closed at
// the end.
func blockedWrites(t *testing.T, addr string, n int) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range n {
			if t.Context().Err() != nil {
				return
			}
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			stop := context.AfterFunc(t.Context(), func() { conn.Close() }) // the end of the test
			err = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
			for err == nil {
				_, err = conn.Write(make([]byte, 1<<20))
			}
			stop()
			conn.Close()
		}
	}()
	t.Cleanup(func() { <-ended })
	return ended
}

// Close does not wait for a silent broker, also when the connection is full.
func TestCloseOfASilentBroker(t *testing.T) {
	c, s := newOrders(t)
	c.topic("orders", fakeQueues{"broker-a", 32, 6})
	send(t, s, message("orders", "k")).want(outbox.ClassNone)
	c.brokers["broker-a"].freeze()
	left := send(t, s, largeMessages()...)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	others := blockedWrites(t, c.brokers["broker-a"].addr, 4)
	if err := s.Close(ctx); err == nil || !strings.Contains(err.Error(), "400 messages") {
		t.Errorf("close: %v", err)
	}
	select {
	case <-others:
		t.Error("Close waited longer than four writes that are blocked one after the other: it has to wait for one")
	default:
	}
	unknown := 0
	for i, o := range left.wait() { // what no request has had was not sent
		switch o.Class {
		case outbox.ClassUnknown:
			unknown++
		case outbox.ClassOutage:
		default:
			t.Errorf("message %d: class %s (%s)", i, o.Class, o.Reason)
		}
	}
	if unknown == 0 {
		t.Error("every message counts as not sent, though requests have had no answer")
	}
}
