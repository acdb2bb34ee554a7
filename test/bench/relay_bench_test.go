package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// backlog is the number of rows of a drain.
const backlog = 300_000

// report prints the median and the 99th percentile, and returns the latter, in milliseconds.
func report(b *testing.B, what string, list []time.Duration) (p99 float64) {
	slices.Sort(list)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(list[len(list)/2]), what+"-p50-ms")
	b.ReportMetric(ms(list[len(list)*99/100]), what+"-p99-ms")
	return ms(list[len(list)*99/100])
}

// BenchmarkDrain starts a stopped relay on a backlog in the log, written in transactions of ten rows, until every row is SENT.
func BenchmarkDrain(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		for _, broker := range []string{"kafka", "rocketmq", "fake"} {
			b.Run(fmt.Sprintf("%s-%s", flavor, broker), func(b *testing.B) {
				f := newFixture(b, flavor, broker)
				list := builds()
				if broker != "kafka" { // whose figures are in the table
					list = list[:1]
				}
				f.each(b, list, func(b *testing.B, u build) {
					f.warm(b, 500, 500)
					f.Stop(b)
					for b.Loop() {
						f.drain(b, u, broker)
					}
				})
			})
		}
	}
}

func (f *fixture) drain(b *testing.B, u build, broker string) {
	b.Helper()
	b.StopTimer()
	defer b.StartTimer()
	n := share(backlog)
	f.fill(b, n, 10)
	b.StartTimer()
	began := time.Now()
	f.Start(b)
	profiled := f.profile(b, fmt.Sprintf("drain-%s-%s-%s", f.db.Flavor, broker, u.name))
	testkit.WaitFor(b, 10*time.Minute, "every row published", func() bool { return f.total(b, "messages_total") >= float64(n) })
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "published/s")
	f.awaitSent(b)
	took, used := time.Since(began), f.usage(b)
	b.StopTimer()
	profiled()
	if got := f.total(b, "messages_total"); got != float64(n) {
		b.Errorf("%v results for %d rows", got, n)
	}
	each := func(total float64) float64 { return total / float64(n) }
	cpu, allocated, peak := each(float64(used.cpu.Microseconds())), each(f.total(b, mallocs)), float64(used.peak)/(1<<20)
	b.ReportMetric(each(f.total(b, "go_memstats_alloc_bytes_total")), "B/msg")
	b.ReportMetric(allocated, "allocs/msg")
	b.ReportMetric(float64(n)/took.Seconds(), "rows/s")
	b.ReportMetric(cpu, "cpu-µs/msg")
	b.ReportMetric(peak, "peak-MiB")
	if broker == "kafka" {
		u.measured("drain-"+string(f.db.Flavor), float64(n)/took.Seconds())
		u.measured("drain-cpu-"+string(f.db.Flavor), cpu)
		u.measured("drain-allocs", allocated)
		u.measured("drain-peak", peak)
	}
	f.Stop(b)
}

// BenchmarkIdle reports the CPU of an idle relay, in percent of a core.
func BenchmarkIdle(b *testing.B) {
	f := newFixture(b, testkit.MySQL, "kafka")
	f.warm(b, 500, 500)
	for b.Loop() {
		used := f.usage(b)
		const span = 20 * time.Second
		<-time.After(span)
		b.ReportMetric(100*float64(f.usage(b).cpu-used.cpu)/float64(span), "percent-of-core")
		b.ReportMetric(float64(f.usage(b).peak)/(1<<20), "peak-MiB")
	}
}

// BenchmarkAckBinlog reports how many bytes of binlog the status update of one 100 kB message costs.
func BenchmarkAckBinlog(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newFixture(b, flavor, "kafka")
		f.warm(b, 100, 500)
		f.Stop(b)
		const n = 200
		for b.Loop() {
			rows := f.rows(n)
			for i := range rows {
				rows[i].Body = slices.Repeat([]byte("0123456789"), 10_000)
				testkit.Must(b, f.table.Insert(context.Background(), f.table.DB, rows[i]))
			}
			before := f.logBytes(b)
			f.Start(b)
			f.awaitSent(b)
			b.ReportMetric(float64(f.logBytes(b)-before)/n, "binlog-B/ack")
			f.Stop(b)
		}
	})
}

func (f *fixture) logBytes(b testing.TB) (total uint64) {
	b.Helper()
	files, err := server.Files(b.Context(), f.table.DB)
	testkit.Must(b, err)
	for _, file := range files {
		total += file.Size
	}
	return total
}

// profile records the CPU profile of the next seconds and, when the returned function is called, that of the allocations, if
// BENCH_PROFILES names a directory for them.
func (f *fixture) profile(b testing.TB, name string) (end func()) {
	b.Helper()
	dir := os.Getenv("BENCH_PROFILES")
	if dir == "" {
		return func() {}
	}
	take := func(kind, what string) {
		response, err := relay.Socket(f.StateDir()).Get("http://relay/debug/pprof/" + what)
		testkit.Must(b, err)
		defer response.Body.Close()
		out, err := os.Create(filepath.Join(dir, name+"."+kind))
		testkit.Must(b, err)
		_, err = io.Copy(out, response.Body)
		testkit.Must(b, errors.Join(err, out.Close()))
	}
	var cpu sync.WaitGroup
	cpu.Go(func() { take("cpu", "profile?seconds=5") })
	return func() {
		take("allocs", "allocs")
		cpu.Wait()
	}
}
