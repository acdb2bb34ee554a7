package bench

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(bareEnv); args != "" {
		if err := bare(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
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

// fixture is one durable database, one broker, one table and one relay.
type fixture struct {
	*relay.Relay
	load
	db     *testkit.Database
	broker relay.Broker
	admin  string
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
	db := testkit.NewDatabase(b, testkit.DatabaseOptions{Flavor: flavor, Durable: true})
	pool := db.Connect(b, db.CreateSchema(b))
	pool.SetMaxIdleConns(16)
	f := &fixture{db: db, load: load{table: relay.NewTable(b, pool, schemaOf(b, pool), "t_local_message"), topic: topic}}
	f.admin, f.broker = testkit.FreeAddress(b), brokers[broker](b)
	source := db.Addr()
	if latency > 0 {
		proxy := testkit.NewProxy(b, source)
		proxy.Latency(latency)
		source = proxy.Addr()
	}
	extra := strings.Join(more, "\n")
	if !strings.Contains(extra, "fallback:") {
		extra += "\nfallback: {interval: 30s}"
	}
	f.Relay = relay.New(b, relay.Options{
		Source: source, Tables: []*relay.Table{f.table}, Sink: f.broker.Sink(), Extra: fmt.Sprintf("admin: {listen: %q}\n%s", f.admin, extra),
	})
	return f
}

// usage is the process' use of resources so far.
type usage struct {
	cpu  time.Duration
	peak int // bytes of resident memory
}

func (f *fixture) usage(b testing.TB) usage { return usageOf(b, f.PID()) }

func usageOf(b testing.TB, pid int) usage {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	testkit.Must(b, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.ParseInt(field, 10, 64)
		testkit.Must(b, err)
		ticks += n
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
	return usage{cpu: time.Duration(ticks) * 10 * time.Millisecond, peak: peak << 10}
}

// metrics reads the process's metrics.
func (f *fixture) metrics(b testing.TB) map[string]*dto.MetricFamily {
	b.Helper()
	response, err := http.Get("http://" + f.admin + "/metrics")
	testkit.Must(b, err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	testkit.Must(b, err)
	return families
}

// histogram returns the only histogram of a family.
func (f *fixture) histogram(b testing.TB, name string) *dto.Histogram {
	b.Helper()
	return only(b, f.metrics(b), name).GetHistogram()
}

// only returns the only metric of a family. If a build does not have it, only the benchmark fails, not the run.
func only(b testing.TB, families map[string]*dto.MetricFamily, name string) *dto.Metric {
	b.Helper()
	list := families[name].GetMetric()
	if len(list) != 1 {
		b.Fatalf("%d metrics are named %s, want one", len(list), name)
	}
	return list[0]
}

// total sums a family's counters.
func (f *fixture) total(b testing.TB, name string) (sum float64) {
	b.Helper()
	for _, m := range f.metrics(b)[name].GetMetric() {
		sum += m.GetCounter().GetValue()
	}
	return sum
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

func schemaOf(b testing.TB, pool interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
},
) (name string) {
	b.Helper()
	testkit.Must(b, pool.QueryRowContext(context.Background(), "SELECT DATABASE()").Scan(&name))
	return name
}
