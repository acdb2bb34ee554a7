package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// backlog is how many rows the drains have.
const backlog = 300_000

// BenchmarkLatency commits 500 rows a second, one a transaction, and reports commit to acknowledgement as the relay measures
// it, and the relay's CPU. MySQL alone has the commit's time to the microsecond; it takes it before it syncs its log, so the
// time of the application's own INSERT stands beside. What the application sees of it, from the return of its INSERT until a
// consumer has the message, is measured with Kafka.
func BenchmarkLatency(b *testing.B) {
	for _, broker := range []string{"kafka", "rocketmq", "fake"} {
		b.Run(broker, func(b *testing.B) {
			f := newFixture(b, testkit.MySQL, broker)
			f.Start(b)
			var arrivals *consumer
			if k, ok := f.broker.(relay.Kafka); ok {
				arrivals = consume(b, k.Addr(), topic, idOfHeader("message_id"))
			}
			f.pace(b, 2_000, 500) // warm: the broker's JIT, connections, caches
			f.awaitSent(b)
			for b.Loop() {
				before, used, allocated := f.metrics(b), f.usage(b), f.allocations(b)
				const n = 15_000
				profiled := f.profile(b, "latency-"+broker)
				rows, committed, inserts := f.pace(b, n, 500)
				f.awaitSent(b)
				after, now := f.metrics(b), f.usage(b)
				profiled()
				b.ReportMetric((f.allocations(b)-allocated)/n, "allocs/msg")
				const name = "canal_outbox_publish_latency_seconds"
				from, to := before[name].GetMetric()[0].GetHistogram(), after[name].GetMetric()[0].GetHistogram()
				b.ReportMetric(percentile(.5, from, to), "p50-ms")
				b.ReportMetric(percentile(.99, from, to), "p99-ms")
				report(b, "insert", inserts)
				b.ReportMetric(float64((now.cpu-used.cpu).Microseconds())/n, "cpu-µs/msg")
				if k, ok := f.broker.(relay.Kafka); ok {
					arrived := report(b, "consumer", arrivals.after(b, rows, committed))
					measured("received-p99", max(0, arrived-report(b, "broker", produceAlone(b, k.Addr(), 2_500))))
					measured("insert-p99", report(b, "insert", inserts))
					measured("steady-cpu", float64((now.cpu-used.cpu).Microseconds())/n)
				}
			}
		})
	}
}

// report shows the median and the 99th percentile, and returns the latter, in milliseconds.
func report(b *testing.B, what string, list []time.Duration) (p99 float64) {
	slices.Sort(list)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(list[len(list)/2]), what+"-p50-ms")
	b.ReportMetric(ms(list[len(list)*99/100]), what+"-p99-ms")
	return ms(list[len(list)*99/100])
}

// BenchmarkDrain lets a relay that was stopped catch up with a backlog in the log, written in transactions of ten rows, until
// every row is SENT.
func BenchmarkDrain(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		for _, broker := range []string{"kafka", "rocketmq", "fake"} {
			b.Run(fmt.Sprintf("%s-%s", flavor, broker), func(b *testing.B) {
				f := newFixture(b, flavor, broker)
				f.Start(b)
				f.pace(b, 500, 500)
				f.awaitSent(b)
				f.Stop(b)
				for b.Loop() {
					b.StopTimer()
					f.fill(b, backlog, 10)
					b.StartTimer()
					began := time.Now()
					f.Start(b)
					profiled := f.profile(b, "drain-"+b.Name()[len("BenchmarkDrain/"):])
					f.awaitSent(b)
					took, used := time.Since(began), f.usage(b)
					b.StopTimer()
					profiled()
					b.ReportMetric(f.total(b, "go_memstats_alloc_bytes_total")/backlog, "B/msg")
					b.ReportMetric(f.allocations(b)/backlog, "allocs/msg")
					if got := f.total(b, "canal_outbox_messages_total"); got != backlog {
						b.Errorf("%v results for %d rows", got, backlog)
					}
					b.ReportMetric(backlog/took.Seconds(), "rows/s")
					b.ReportMetric(float64(used.cpu.Microseconds())/backlog, "cpu-µs/msg")
					b.ReportMetric(float64(used.peak)/(1<<20), "peak-MiB")
					if broker == "kafka" {
						measured("drain-"+string(flavor), backlog/took.Seconds())
						measured("drain-cpu-"+string(flavor), float64(used.cpu.Microseconds())/backlog)
						measured("drain-allocs", f.allocations(b)/backlog)
						measured("drain-peak", float64(used.peak)/(1<<20))
					}
					f.Stop(b)
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkIdle reports the CPU of a relay that has nothing to do, in percent of a core.
func BenchmarkIdle(b *testing.B) {
	f := newFixture(b, testkit.MySQL, "kafka")
	f.Start(b)
	f.pace(b, 500, 500)
	f.awaitSent(b)
	for b.Loop() {
		used := f.usage(b)
		const span = 20 * time.Second
		<-time.After(span)
		b.ReportMetric(100*float64(f.usage(b).cpu-used.cpu)/float64(span), "percent-of-core")
		b.ReportMetric(float64(f.usage(b).peak)/(1<<20), "peak-MiB")
	}
}

// BenchmarkAckBinlog reports how many bytes of binlog the acknowledgement of one 100 kB message costs.
func BenchmarkAckBinlog(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) {
			f := newFixture(b, flavor, "kafka")
			f.Start(b)
			f.pace(b, 100, 500)
			f.awaitSent(b)
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
}

func (f *fixture) logBytes(b testing.TB) (total int64) {
	b.Helper()
	rows, err := f.table.DB.Query("SHOW BINARY LOGS")
	testkit.Must(b, err)
	defer rows.Close()
	columns, err := rows.Columns()
	testkit.Must(b, err)
	for rows.Next() {
		var name string
		var size int64
		to := []any{&name, &size}
		for range columns[2:] {
			to = append(to, new(any))
		}
		testkit.Must(b, rows.Scan(to...))
		total += size
	}
	testkit.Must(b, rows.Err())
	return total
}

// profile takes the CPU profile of the coming seconds and, when the returned function is called, that of the allocations, where
// BENCH_PROFILES names a directory for them.
func (f *fixture) profile(b testing.TB, name string) (end func()) {
	b.Helper()
	dir := os.Getenv("BENCH_PROFILES")
	if dir == "" {
		return func() {}
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(f.StateDir(), "admin.sock"))
	}}}
	take := func(kind, what string) {
		response, err := client.Get("http://relay/debug/pprof/" + what)
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

// allocations is how many objects the process has allocated so far.
func (f *fixture) allocations(b testing.TB) float64 {
	b.Helper()
	return f.metrics(b)["go_memstats_mallocs_total"].GetMetric()[0].GetCounter().GetValue()
}
