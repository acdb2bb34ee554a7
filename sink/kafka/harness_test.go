package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/sinktest"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
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

// newFake starts a cluster of one broker.
func newFake(t testing.TB, opts ...kfake.Opt) *fakekafka.Cluster {
	t.Helper()
	return fakekafka.New(t, 1, nil, opts...)
}

func testConfig(addr string) config {
	return config{brokers: []string{addr}, codec: codecs["none"], maxBytes: 1_000_012, limits: sink.Limits{Messages: 10_000, Bytes: 64 << 20}, times: usual}
}

// patient are limits in time that no test waits for: what returns did not wait for them.
var patient = times{delivery: time.Hour, dial: time.Hour, close: time.Hour}

// closeSilent closes a sink whose broker answers nothing. A Close that waits for an answer, or for one of the patient limits, does
// not return.
func closeSilent(t *testing.T, s *Sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("Close does not report that messages had no answer")
		}
	case <-time.After(patience):
		t.Fatal("Close waits for an answer that never comes")
	}
}

// newSink returns a sink that the test closes at its end, unless it was closed before.
func newSink(t testing.TB, addr string, change ...func(*config)) *Sink {
	t.Helper()
	cfg := testConfig(addr)
	for _, c := range change {
		c(&cfg)
	}
	s, err := open(cfg, zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)), prometheus.NewRegistry())
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	testkit.Must(t, testkit.CreateKafkaTopic(ctx, addr, name, 4, configs))
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
			cfg := testConfig(addr())
			cfg.times = patient // a Close that waits for one of them does not return in time
			s, err := open(cfg, zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)), prometheus.NewRegistry())
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
		Poison:       func(m *outbox.Message) { m.Body = make([]byte, topicLimit+10_000) },
	}
}

func TestSuiteOnFakeBroker(t *testing.T) { suiteOnFake(t, harness) }

func suiteOnFake(t *testing.T, of func(addr func() string) sinktest.Harness) {
	f := newFake(t)
	h := of(f.Addr)
	h.Stop = func(testing.TB) { f.Stop() }
	h.Start = func(t testing.TB) { testkit.Must(t, f.Start()) }
	for _, name := range []string{"(*broker).listen", "(*Cluster).run", "(*clientConn).read", "(*clientConn).write"} {
		h.Leaks = append(h.Leaks, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake."+name)) // the broker's own
	}
	sinktest.Run(t, h)
}

func TestSuiteOnKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	suiteOnKafka(t, harness)
}

func suiteOnKafka(t *testing.T, of func(addr func() string) sinktest.Harness) {
	k := testkit.NewKafka(t, testkit.KafkaOptions{})
	h := of(k.Addr)
	h.Stop = func(t testing.TB) { testkit.Must(t, k.Kill()) }
	h.Start = func(t testing.TB) { testkit.Must(t, k.Start(context.Background())) }
	h.Leaks = []goleak.Option{testkit.IgnoreServers()}
	sinktest.Run(t, h)
}
