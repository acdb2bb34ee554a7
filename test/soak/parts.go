package soak

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// Parts are what a fault breaks: one relay, its connection to the database, and the broker.
type Parts struct {
	Relay  *relay.Relay
	Proxy  *testkit.Proxy     // between the relay and the database
	Fake   *fakekafka.Cluster // nil with a real broker
	Server *testkit.Server    // the real broker, nil with the fake one
}

// slow is the delay of the network in each direction.
const slow = 30 * time.Millisecond

// NewBroker starts a broker, "fake", "kafka" or "rocketmq", with topics: name to number of partitions or queues. One of fake and server is nil.
func NewBroker(t testing.TB, kind string, topics map[string]int) (b relay.Broker, fake *fakekafka.Cluster, server *testkit.Server) {
	t.Helper()
	switch kind {
	case "kafka":
		k := testkit.NewKafka(t, testkit.KafkaOptions{})
		for name, n := range topics {
			testkit.Must(t, k.CreateTopic(t.Context(), name, n, nil))
		}
		return relay.Kafka{Kafka: k}, nil, k.Server
	case "rocketmq":
		q := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: topics})
		return relay.RocketMQ{RocketMQ: q}, nil, q.Broker
	}
	fake = fakekafka.New(t, 1, topics)
	return fake, fake, nil
}

// Break causes a fault; fix ends it.
func (p Parts) Break(t testing.TB, kind Kind) (fix func() error, err error) {
	t.Helper()
	switch kind {
	case FreezeRelay:
		pid := p.Relay.PID()
		return func() error { return syscall.Kill(pid, syscall.SIGCONT) }, syscall.Kill(pid, syscall.SIGSTOP)
	case CutDatabase:
		p.Proxy.Cut()
		return func() error { p.Proxy.Cut(); return nil }, nil
	case HoleDatabase:
		return switched(p.Proxy.Hole), nil
	case SlowDatabase:
		p.Proxy.Latency(slow)
		return func() error { p.Proxy.Latency(0); return nil }, nil
	case RefuseDatabase:
		err := p.Proxy.Refuse(true)
		p.Proxy.Cut()
		return func() error { return p.Proxy.Refuse(false) }, err
	case StopBroker:
		if p.Fake == nil {
			return func() error { return p.Server.Start(t.Context()) }, p.Server.Kill()
		}
		p.Fake.Stop()
		return p.Fake.Start, nil
	case FreezeBroker:
		if p.Fake == nil {
			return p.Server.Resume, p.Server.Pause()
		}
		return switched(p.Fake.Swallow), nil
	case LoseReplies:
		return switched(p.Fake.LoseReplies), nil
	case RefuseMessages:
		handle := p.Fake.Fault(testkit.KafkaFault{Key: kmsg.Produce, Err: kerr.NotEnoughReplicas, Count: -1})
		return func() error { handle.Remove(); return nil }, nil
	}
	return nil, fmt.Errorf("no such fault: %s", kind)
}

// switched switches something on, and off again in fix.
func switched(f func(on bool)) (fix func() error) {
	f(true)
	return func() error { f(false); return nil }
}
