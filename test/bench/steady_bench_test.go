package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkSteady measures the cost of a message at a steady rate, one row per transaction, and its latency: as the relay
// measures it, from the commit's time in the log to the broker's acknowledgement, and with Kafka at a consumer, from the return
// of the INSERT. For comparison it measures the INSERT's own time and that of a producer alone with the broker. Only MySQL has
// the commit's time to the microsecond; it takes it before it syncs its log.
func BenchmarkSteady(b *testing.B) {
	for _, of := range []struct {
		flavor    testkit.Flavor
		broker    string
		perSecond rate.Limit
	}{{testkit.MySQL, "kafka", 500}, {testkit.MariaDB, "kafka", 500}, {testkit.MySQL, "rocketmq", 1000}} {
		b.Run(fmt.Sprintf("%s-%s-%v", of.flavor, of.broker, of.perSecond), func(b *testing.B) {
			f := newFixture(b, of.flavor, of.broker)
			var arrivals *consumer
			if k, ok := f.broker.(relay.Kafka); ok {
				arrivals = consume(b, k.Addr(), topic, idOfHeader("message_id"))
			}
			f.warm(b, share(4_000), 500) // warm: the broker's JIT, connections, caches
			f.Stop(b)
			f.each(b, builds(), func(b *testing.B, u build) {
				for b.Loop() {
					f.steady(b, u, of.perSecond, arrivals)
				}
			})
		})
	}
}

// steady runs a build at a rate.
func (f *fixture) steady(b *testing.B, u build, perSecond rate.Limit, arrivals *consumer) {
	b.Helper()
	const latency = "publish_latency_seconds"
	f.warm(b, 1_000, perSecond)
	used, switches, begun := f.usage(b), f.switches(b), f.Metrics(b)
	profiled := f.profile(b, fmt.Sprintf("steady-%s-%s", f.db.Flavor, u.name))
	n := share(7_500) * int(perSecond) / 500
	rows, committed, inserts := f.pace(b, n, perSecond)
	f.awaitSent(b)
	now, ended := f.usage(b), f.Metrics(b)
	each := func(total float64) float64 { return total / float64(n) }
	cpu := each(float64((now.cpu - used.cpu).Microseconds()))
	b.ReportMetric(cpu, "cpu-µs/msg")
	b.ReportMetric(each(float64((now.kernel - used.kernel).Microseconds())), "kernel-µs/msg")
	b.ReportMetric(each(float64(f.switches(b)-switches)), "switches/msg")
	b.ReportMetric(each(ended.Sum(mallocs)-begun.Sum(mallocs)), "allocs/msg")
	b.ReportMetric(1000*each(collections(b, ended)-collections(b, begun)), "gc/1000msg")
	b.ReportMetric(float64(now.peak)/(1<<20), "peak-MiB")
	from, to := begun.Only(b, latency).GetHistogram(), ended.Only(b, latency).GetHistogram()
	b.ReportMetric(percentile(.5, from, to), "p50-ms")
	acknowledged := percentile(.99, from, to)
	b.ReportMetric(acknowledged, "p99-ms")
	inserted := report(b, "insert", inserts)
	var received float64
	if arrivals != nil {
		received = report(b, "consumer", arrivals.after(b, rows, committed))
	}
	profiled()
	f.Stop(b)
	alone := report(b, "broker", produceAlone(b, f.broker, share(2_500), perSecond))
	switch {
	case arrivals == nil:
		u.measured("rocketmq-p99", acknowledged)
		u.measured("rocketmq-insert-p99", inserted)
		u.measured("rocketmq-alone-p99", alone)
	case f.db.Flavor == testkit.MySQL:
		u.measured("received-p99", max(0, received-alone))
		u.measured("insert-p99", inserted)
		u.measured("steady-cpu", cpu)
	}
}

// switches returns how often idle threads of the process have yielded a core.
func (f *fixture) switches(b testing.TB) (total int) {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", f.PID()))
	testkit.Must(b, err)
	for _, file := range files {
		status, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n, err := strconv.Atoi(strings.TrimSpace(rest))
				testkit.Must(b, err)
				total += n
			}
		}
	}
	return total
}

// mallocs is the name of the number of allocated objects.
const mallocs = "go_memstats_mallocs_total"

// collections returns the number of garbage collections of a process.
func collections(b testing.TB, of relay.Metrics) float64 {
	b.Helper()
	return float64(of.Only(b, "go_gc_duration_seconds").GetSummary().GetSampleCount())
}
