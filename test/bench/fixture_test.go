package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

func TestMain(m *testing.M) {
	for name, run := range map[string]func(string) error{bareEnv: bare, tailEnv: tail} {
		if args := os.Getenv(name); args != "" {
			if err := run(args); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	remove, err := buildOlder(os.Getenv("BENCH_BEFORE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	relay.Main(m, showTargets, remove)
}

const (
	topic    = "orders"
	keys     = 1000
	bodySize = 500
)

const preset = "t_local_message"

// fixture is one durable database, one broker, one table and one relay.
type fixture struct {
	*relay.Relay
	load
	broker relay.Broker
}

// brokers start the broker of a name.
var brokers = map[string]func(testing.TB) relay.Broker{
	"kafka": func(b testing.TB) relay.Broker {
		k := testkit.NewKafka(b, testkit.KafkaOptions{JVM: []string{"-Xms512m", "-Xmx512m"}})
		testkit.Must(b, k.CreateTopic(context.Background(), topic, 8, nil))
		return relay.Kafka{Kafka: k}
	},
	"rocketmq": func(b testing.TB) relay.Broker {
		return relay.RocketMQ{RocketMQ: testkit.NewRocketMQ(b, testkit.RocketMQOptions{
			Topics: map[string]int{topic: 8}, JVM: []string{"-Xms1g", "-Xmx1g"},
		})}
	},
	// fake uses little of the two cores, in the benchmark's own process: the rest is the relay's and the database's.
	"fake": func(b testing.TB) relay.Broker { return fakekafka.New(b, 1, map[string]int{topic: 8}) },
}

func newFixture(b testing.TB, flavor testkit.Flavor, broker string, more ...string) *fixture {
	b.Helper()
	return newFixtureBehind(b, 0, flavor, broker, more...)
}

// newFixtureBehind is newFixture with a network of that latency, each way, between the relay and its database.
func newFixtureBehind(b testing.TB, latency time.Duration, flavor testkit.Flavor, broker string, more ...string) *fixture {
	b.Helper()
	f := &fixture{load: newLoad(b, durable(b, flavor), preset), broker: brokers[broker](b)}
	source := f.db.Addr()
	if latency > 0 {
		proxy := testkit.NewProxy(b, source)
		proxy.Latency(latency)
		source = proxy.Addr()
	}
	f.relay(b, source, more...)
	return f
}

// onEach runs a benchmark on each database.
func onEach(b *testing.B, run func(b *testing.B, flavor testkit.Flavor)) {
	b.Helper()
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) { run(b, flavor) })
	}
}

// warm starts the relay and has it publish rows at a rate.
func (f *fixture) warm(b testing.TB, rows int, perSecond rate.Limit) {
	b.Helper()
	f.Start(b)
	f.pace(b, rows, perSecond)
	f.awaitSent(b)
}

// relay configures the fixture's relay for its table.
func (f *fixture) relay(b testing.TB, source string, more ...string) {
	b.Helper()
	extra := strings.Join(more, "\n")
	if !strings.Contains(extra, "fallback:") {
		extra += "\nfallback: {interval: 30s}"
	}
	f.Relay = relay.New(b, relay.Options{Source: source, Tables: []*relay.Table{f.table}, Sink: f.broker.Sink(), Extra: extra})
}

// usage is the process' use of resources so far.
type usage struct {
	cpu, kernel time.Duration // the second is a part of the first
	peak        int           // bytes of resident memory
}

func (f *fixture) usage(b testing.TB) usage { return usageOf(b, f.PID()) }

func usageOf(b testing.TB, pid int) usage {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	testkit.Must(b, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks [2]time.Duration
	for i, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(field)
		testkit.Must(b, err)
		ticks[i] = time.Duration(n) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	testkit.Must(b, err)
	var peak int
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, err := fmt.Sscan(rest, &peak)
			testkit.Must(b, err)
		}
	}
	return usage{cpu: ticks[0] + ticks[1], kernel: ticks[1], peak: peak << 10}
}

// histogram returns the only histogram of a name.
func (f *fixture) histogram(b testing.TB, name string) *dto.Histogram {
	b.Helper()
	return f.Metrics(b).Only(b, name).GetHistogram()
}

// total sums a family's counters.
func (f *fixture) total(b testing.TB, name string) float64 {
	b.Helper()
	return f.Metrics(b).Sum(name)
}

// awaitSent waits until no row is unsent, with cheap queries.
func (f *fixture) awaitSent(b testing.TB) {
	b.Helper()
	testkit.WaitFor(b, 10*time.Minute, "every row SENT", func() bool {
		var one int
		err := f.table.DB.QueryRow("SELECT COUNT(*) FROM (SELECT 1 FROM " + f.table.Name() + " WHERE status IN (0, 1, 3) LIMIT 1) AS t").Scan(&one)
		testkit.Must(b, err)
		return one == 0
	})
}

// percentile returns that of a histogram between two readings, by interpolation in the bucket, in milliseconds.
func percentile(q float64, before, after *dto.Histogram) float64 {
	total := float64(after.GetSampleCount() - before.GetSampleCount())
	low, lowCount := 0.0, 0.0
	for i, bucket := range after.GetBucket() {
		count := float64(bucket.GetCumulativeCount() - before.GetBucket()[i].GetCumulativeCount())
		if count >= q*total {
			return 1000 * (low + (bucket.GetUpperBound()-low)*(q*total-lowCount)/max(count-lowCount, 1))
		}
		low, lowCount = bucket.GetUpperBound(), count
	}
	return 1000 * low
}
