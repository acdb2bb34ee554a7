package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func sendRocketMQ(t *testing.T, r *RocketMQ, messages ...*primitive.Message) {
	t.Helper()
	rlog.SetLogLevel("fatal")
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{r.NameServer()}), producer.WithInstanceName(fmt.Sprint(time.Now().UnixNano())))
	Must(t, err)
	Must(t, p.Start())
	defer p.Shutdown()
	for _, m := range messages {
		if _, err := p.SendSync(t.Context(), m); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
}

// readRocketMQ reads until there are n messages, since a queue shows them some milliseconds after the acknowledgement.
func readRocketMQ(t *testing.T, r *RocketMQ, topic string, n int) (found []RocketMQMessage) {
	t.Helper()
	WaitFor(t, 10*time.Second, fmt.Sprintf("%d messages in %s", n, topic), func() bool {
		var err error
		found, err = ReadRocketMQTopic(t.Context(), r.NameServer(), topic)
		Must(t, err)
		return len(found) >= n
	})
	if len(found) != n {
		t.Fatalf("%d messages in %s, sent %d", len(found), topic, n)
	}
	return found
}

func TestRocketMQLife(t *testing.T) {
	startsServers(t)
	begin := time.Now()
	r := NewRocketMQ(t, RocketMQOptions{Topics: map[string]int{"orders": 4}})
	t.Logf("first start %v", time.Since(begin))
	var sent []*primitive.Message
	for i := range 100 {
		sent = append(sent, primitive.NewMessage("orders", fmt.Append(nil, "body ", i)))
	}
	sendRocketMQ(t, r, sent...)
	readRocketMQ(t, r, "orders", 100)

	addr := r.BrokerAddr()
	Must(t, r.Broker.Kill())
	begin = time.Now()
	Must(t, r.Broker.Start(t.Context()))
	t.Logf("broker's start after Kill %v", time.Since(begin))
	if r.BrokerAddr() != addr {
		t.Fatalf("restarted on %s, was on %s", r.BrokerAddr(), addr)
	}
	readRocketMQ(t, r, "orders", 100)

	Must(t, r.Names.Kill())
	Must(t, r.Names.Start(t.Context()))
	pids := []int{r.Broker.PID(), r.Names.PID()}
	Must(t, r.Close())
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
	if _, err := os.Stat(r.dir.path); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", r.dir.path, err)
	}
}

func TestRocketMQReadsEveryField(t *testing.T) {
	startsServers(t)
	r := SharedRocketMQ(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	CheckLeaks(t)
	Must(t, r.CreateTopic(ctx, "fields", 2))
	t.Logf("create topic %v", time.Since(begin))
	big := bytes.Repeat([]byte("compressible "), 10_000)
	m := primitive.NewMessage("fields", big)
	m.WithTag("paid").WithKeys([]string{"a-1", "b-2"})
	m.WithProperty("UNIQ_KEY", "our-own-id")
	m.WithProperty("größe", "ü")
	sendRocketMQ(t, r, m)
	got := readRocketMQ(t, r, "fields", 1)[0]
	if got.Topic != "fields" || got.Tag() != "paid" || got.ID() != "our-own-id" || got.Properties["größe"] != "ü" {
		t.Errorf("topic %q, tag %q, id %q, property %q", got.Topic, got.Tag(), got.ID(), got.Properties["größe"])
	}
	if !slices.Equal(got.Keys(), []string{"a-1", "b-2"}) {
		t.Errorf("keys %q", got.Keys())
	}
	if !bytes.Equal(got.Body, big) {
		t.Errorf("a body of %d bytes became one of %d", len(big), len(got.Body))
	}
	if got.QueueID < 0 || got.QueueID > 1 || got.QueueOffset != 0 || got.Stored.Before(begin.Add(-time.Second)) {
		t.Errorf("queue %d, offset %d, stored %v", got.QueueID, got.QueueOffset, got.Stored)
	}
}

func TestRocketMQTopicIsNotCreatedByUse(t *testing.T) {
	startsServers(t)
	r := SharedRocketMQ(t)
	if _, err := ReadRocketMQTopic(t.Context(), r.NameServer(), "nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Fatalf("reading a topic that does not exist: %v", err)
	}
}
