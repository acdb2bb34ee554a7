package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/sinktest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
)

func TestMain(m *testing.M) {
	if os.Getenv(blackhole) != "" {
		serveBlackhole()
		return
	}
	testkit.Main(m)
}

// fake is a kfake cluster of one broker that can be stopped and started again on its port with its data.
type fake struct {
	*kfake.Cluster
	t    testing.TB
	opts []kfake.Opt
}

func newFake(t testing.TB, opts ...kfake.Opt) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "kfake-") // t.TempDir is removed once; a broker that is closed may still write
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		testkit.WaitFor(t, time.Minute, "the broker's directory to be removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	f := &fake{t: t, opts: append([]kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(dir)}, opts...)}
	f.start(t)
	_, port, err := net.SplitHostPort(f.addr())
	if err != nil {
		t.Fatal(err)
	}
	number, _ := strconv.Atoi(port)
	f.opts = append(f.opts, kfake.Ports(number))
	t.Cleanup(func() { f.Close() })
	return f
}

func (f *fake) start(t testing.TB) {
	t.Helper()
	c, err := kfake.NewCluster(f.opts...)
	if err != nil {
		t.Fatal(err)
	}
	f.Cluster = c
}

// Fault adds a fault after the existing control functions.
func (f *fake) Fault(one testkit.KafkaFault) *testkit.KafkaFaultHandle {
	return testkit.FaultKafka(f.t, f.Cluster, one)
}

func (f *fake) addr() string { return f.ListenAddrs()[0] }

// newSink returns a sink that the test closes at its end, unless it was closed before.
func newSink(t testing.TB, addr string, change ...func(*Config)) *Sink {
	t.Helper()
	cfg := Config{Brokers: []string{addr}}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg, zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !s.closed {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Log(err)
			}
		}
	})
	return s
}

// createTopic creates a topic of four partitions with a unique name and waits until the metadata has it.
func createTopic(t testing.TB, addr string, configs map[string]string) string {
	t.Helper()
	name := fmt.Sprintf("orders.%x", rand.Uint64())
	makeTopic(t, addr, name, configs)
	return name
}

func makeTopic(t testing.TB, addr, name string, configs map[string]string) {
	t.Helper()
	admin(t, addr, func(ctx context.Context, a *kadm.Client) error {
		values := map[string]*string{}
		for k, v := range configs {
			values[k] = kadm.StringPtr(v)
		}
		_, err := a.CreateTopic(ctx, 4, 1, values, name)
		if err != nil {
			return err
		}
		for { // a real broker gets its partitions a little later
			details, err := a.ListTopics(ctx, name)
			if err != nil || details[name].Err == nil && len(details[name].Partitions) == 4 {
				return err
			}
		}
	})
}

func admin(t testing.TB, addr string, do func(context.Context, *kadm.Client) error) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := do(ctx, kadm.NewClient(client)); err != nil {
		t.Fatal(err)
	}
}

// stored reads a topic for sinktest: the sink's headers are separated from the row's own.
func stored(t testing.TB, addr, topic string) []sinktest.Stored {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records, err := testkit.ReadKafkaTopic(ctx, addr, topic)
	if err != nil {
		t.Fatal(err)
	}
	var out []sinktest.Stored
	for _, r := range records {
		s := sinktest.Stored{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Body: r.Value}
		for _, h := range r.Headers {
			switch h.Key {
			case HeaderMessageID:
				s.MessageID = string(h.Value)
			case HeaderTag:
				s.Tag = string(h.Value)
			case HeaderBizType, HeaderCreatedAt:
			default:
				s.Headers = append(s.Headers, outbox.Header{Name: h.Key, Value: string(h.Value)})
			}
		}
		out = append(out, s)
	}
	return out
}

// Limits of the suite: a topic accepts 900,000 bytes in a batch, the sink sends batches of 1,000,012.
const topicLimit = 900_000

func harness(addr func() string) sinktest.Harness {
	return sinktest.Harness{
		New: func(t testing.TB) sink.Sink {
			s, err := New(Config{Brokers: []string{addr()}}, zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Topic: func(t testing.TB) string {
			return createTopic(t, addr(), map[string]string{"max.message.bytes": strconv.Itoa(topicLimit)})
		},
		Read:         func(t testing.TB, topic string) []sinktest.Stored { return stored(t, addr(), topic) },
		Partitions:   4,
		MaxBytes:     topicLimit - 1000,
		IllegalTopic: "orders/created",
		UnknownTopic: "no.such.topic",
		NullBody:     sinktest.Carried,
		EmptyBody:    sinktest.Carried,
		Poison:       func(m *outbox.Message) { m.Body = make([]byte, topicLimit+10_000) },
	}
}

func TestSuiteOnFakeBroker(t *testing.T) {
	f := newFake(t)
	h := harness(f.addr)
	h.Stop = func(testing.TB) { f.Close() }
	h.Start = f.start
	for _, name := range []string{"(*broker).listen", "(*Cluster).run", "(*clientConn).read", "(*clientConn).write"} {
		h.Leaks = append(h.Leaks, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake."+name)) // the broker's own
	}
	sinktest.Run(t, h)
}

func TestSuiteOnKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	k := testkit.NewKafka(t, testkit.KafkaOptions{})
	h := harness(k.Addr)
	h.Stop = func(t testing.TB) { testkit.Must(t, k.Kill()) }
	h.Start = func(t testing.TB) { testkit.Must(t, k.Start(context.Background())) }
	h.Leaks = []goleak.Option{goleak.IgnoreAnyFunction("github.com/canal-outbox/canal-outbox/internal/testkit.reap")}
	sinktest.Run(t, h)
}
