package bench

import (
	"fmt"
	"os"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// BenchmarkForeign is the cost of an outbox message in a log with ten updates of another table per message, each a separate
// transaction, read after a pause.
func BenchmarkForeign(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newFixture(b, flavor, "fake")
		f.stock(b)
		f.each(b, builds(), func(b *testing.B, u build) {
			for b.Loop() {
				f.foreign(b, u, share(10_000))
			}
		})
	})
}

// BenchmarkCeilingForeign reads the log of BenchmarkForeign and drops it.
func BenchmarkCeilingForeign(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newLogFixture(b, flavor)
		f.stock(b)
		n := share(10_000)
		f.amongForeign(b, n)
		for b.Loop() {
			used := usageOf(b, os.Getpid())
			f.read(b, n)
			ownCPU(b, "read-foreign-cpu", used, n)
		}
	})
}

// foreign makes a build publish n rows among ten times as many updates of another table.
func (f *fixture) foreign(b *testing.B, u build, n int) {
	b.Helper()
	f.Start(b)
	f.fill(b, 2_000, 10)
	f.awaitSent(b)
	f.pause(b)
	f.amongForeign(b, n)
	used, allocated := f.usage(b), f.total(b, mallocs)
	profiled := f.profile(b, fmt.Sprintf("foreign-%s-%s", f.db.Flavor, u.name))
	testkit.Must(b, f.Client().Resume(b.Context()))
	f.awaitSent(b)
	cpu := float64((f.usage(b).cpu - used.cpu).Microseconds()) / float64(n)
	b.ReportMetric(cpu, "cpu-µs/msg")
	b.ReportMetric((f.total(b, mallocs)-allocated)/float64(n), "allocs/msg")
	u.measured("foreign-cpu", cpu)
	profiled()
	f.Stop(b)
}

// amongForeign commits n rows and ten times as many updates of the other table, each a transaction.
func (l *load) amongForeign(b testing.TB, n int) {
	b.Helper()
	l.commit(b, commits{rows: n, size: 1, connections: 8, foreign: 10})
}
