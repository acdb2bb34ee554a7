package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// builds are the programs that a benchmark compares: this source's, and those that BENCH_BESIDE names (paths, with commas between).
func builds(b *testing.B) (list []string) {
	list = append(list, relay.Binary(b, ""))
	for _, path := range strings.Split(os.Getenv("BENCH_BESIDE"), ",") {
		if path != "" {
			list = append(list, path)
		}
	}
	return list
}

// spent is what builds used and how fast they were, over their turns.
type spent struct {
	messages, switches int
	cpu, kernel        time.Duration
	allocations        float64
	collections        float64
	inserts, received  []time.Duration
	peak               int
}

// BenchmarkSteady is what a message costs at 500 rows/s, one a transaction, in turns with the builds of BENCH_BESIDE: one relay runs at
// a time, on the same server, broker and table. The percentiles are those of a consumer, from the return of the INSERT.
func BenchmarkSteady(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) {
			f := newFixture(b, flavor, "kafka")
			arrivals := consume(b, f.broker.(relay.Kafka).Addr(), topic, idOfHeader("message_id"))
			all := builds(b)
			totals := make([]spent, len(all))
			f.Program = all[0]
			f.turn(b, 4_000, arrivals, &spent{})
			for b.Loop() {
				for i := range 2 * len(all) { // there and back again
					if i >= len(all) {
						i = 2*len(all) - 1 - i
					}
					f.Program = all[i]
					f.turn(b, 5_000, arrivals, &totals[i])
				}
			}
			for i, s := range totals {
				name := ""
				if i > 0 {
					name = filepath.Base(all[i]) + "-"
				}
				s.report(b, name)
			}
		})
	}
}

// BenchmarkForeign is what an outbox message costs in a log in which ten updates of another table, each a transaction of its own, come
// with each, read after a pause, in turns with the builds of BENCH_BESIDE.
func BenchmarkForeign(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) {
			f := newFixture(b, flavor, "fake")
			testkit.Exec(b, f.table.DB, "CREATE TABLE stock (id INT PRIMARY KEY, held INT NOT NULL, note VARCHAR(300) NOT NULL)")
			testkit.Exec(b, f.table.DB, "INSERT INTO stock SELECT seq, 0, REPEAT('n', 200) FROM (WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 100) SELECT seq FROM n) AS list")
			testkit.Exec(b, f.db.Root(), "SET GLOBAL sync_binlog = 0, GLOBAL innodb_flush_log_at_trx_commit = 0") // the log is only read here
			all := builds(b)
			totals := make([]spent, len(all))
			for b.Loop() {
				for i := range 2 * len(all) {
					if i >= len(all) {
						i = 2*len(all) - 1 - i
					}
					f.Program = all[i]
					f.foreignTurn(b, 4_000, &totals[i])
				}
			}
			for i, s := range totals {
				name := ""
				if i > 0 {
					name = filepath.Base(all[i]) + "-"
				}
				b.ReportMetric(float64(s.cpu.Microseconds())/float64(s.messages), name+"cpu-µs/msg")
				b.ReportMetric(s.allocations/float64(s.messages), name+"allocs/msg")
			}
		})
	}
}

// foreignTurn lets one build take n rows among ten times as many updates of another table.
func (f *fixture) foreignTurn(b *testing.B, n int, s *spent) {
	b.Helper()
	testkit.Must(b, os.RemoveAll(f.StateDir()))
	f.Start(b)
	f.fill(b, 2_000, 10)
	f.awaitSent(b)
	_, err := f.Client().Pause(b.Context(), outbox.Pause{Reason: "a backlog is made"})
	testkit.Must(b, err)
	var group sync.WaitGroup
	for k := range 8 {
		group.Go(func() {
			for i := range 10 * n / 8 {
				if _, err := f.table.DB.ExecContext(context.Background(), "UPDATE stock SET held = held + 1 WHERE id = ?", 1+(8*i+k)%100); err != nil {
					b.Error(err)
				}
			}
		})
	}
	f.fill(b, n, 1)
	group.Wait()
	used, allocated := f.usage(b), f.allocations(b)
	profiled := f.profile(b, fmt.Sprintf("foreign-%s-%s", f.db.Flavor, filepath.Base(f.Program)))
	testkit.Must(b, f.Client().Resume(b.Context()))
	f.awaitSent(b)
	s.cpu += f.usage(b).cpu - used.cpu
	s.allocations += f.allocations(b) - allocated
	s.messages += n
	profiled()
	f.Stop(b)
}

// turn lets one build take n rows, from a state of its own.
func (f *fixture) turn(b *testing.B, n int, arrivals *consumer, s *spent) {
	b.Helper()
	testkit.Must(b, os.RemoveAll(f.StateDir()))
	f.Start(b)
	f.pace(b, 1_000, 500)
	f.awaitSent(b)
	used, kernel, switches := f.usage(b), f.kernel(b), f.switches(b)
	allocated, collected := f.allocations(b), f.collections(b)
	profiled := f.profile(b, fmt.Sprintf("steady-%s-%s", f.db.Flavor, filepath.Base(f.Program)))
	rows, committed, inserts := f.pace(b, n, 500)
	f.awaitSent(b)
	s.cpu += f.usage(b).cpu - used.cpu
	s.kernel += f.kernel(b) - kernel
	s.switches += f.switches(b) - switches
	s.allocations += f.allocations(b) - allocated
	s.collections += f.collections(b) - collected
	s.messages += n
	s.peak = max(s.peak, f.usage(b).peak)
	s.inserts = append(s.inserts, inserts...)
	s.received = append(s.received, arrivals.after(b, rows, committed)...)
	profiled()
	f.Stop(b)
}

func (s *spent) report(b *testing.B, name string) {
	each := func(total float64) float64 { return total / float64(s.messages) }
	b.ReportMetric(each(float64(s.cpu.Microseconds())), name+"cpu-µs/msg")
	b.ReportMetric(each(float64(s.kernel.Microseconds())), name+"kernel-µs/msg")
	b.ReportMetric(each(float64(s.switches)), name+"switches/msg")
	b.ReportMetric(each(s.allocations), name+"allocs/msg")
	b.ReportMetric(1000*each(s.collections), name+"gc/1000msg")
	b.ReportMetric(float64(s.peak)/(1<<20), name+"peak-MiB")
	report(b, name+"insert", s.inserts)
	report(b, name+"consumer", s.received)
}

// kernel is the time that the process has spent in the kernel.
func (f *fixture) kernel(b testing.TB) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.PID()))
	testkit.Must(b, err)
	ticks, err := strconv.Atoi(strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[12])
	testkit.Must(b, err)
	return time.Duration(ticks) * 10 * time.Millisecond
}

// switches is how often threads of the process have given a core up because they had nothing to do.
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

// collections is how often the process has collected garbage.
func (f *fixture) collections(b testing.TB) float64 {
	b.Helper()
	return float64(f.metrics(b)["go_gc_duration_seconds"].GetMetric()[0].GetSummary().GetSampleCount())
}
