package bench

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// BenchmarkForeign is the cost of an outbox message in a log with ten updates of another table per message, each a separate
// transaction, read after a pause.
func BenchmarkForeign(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) {
			f := newFixture(b, flavor, "fake")
			f.stock(b, f.db)
			f.each(b, builds(), func(b *testing.B, u build) {
				for b.Loop() {
					f.foreign(b, u, share(10_000))
				}
			})
		})
	}
}

// BenchmarkCeilingForeign reads the log of BenchmarkForeign and drops it.
func BenchmarkCeilingForeign(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) {
			f := newLogFixture(b, flavor)
			f.stock(b, f.db)
			n := share(10_000)
			f.amongForeign(b, n)
			for b.Loop() {
				used := usageOf(b, os.Getpid())
				f.read(b, n)
				ownCPU(b, "read-foreign-cpu", used, n)
			}
		})
	}
}

// foreign makes a build publish n rows among ten times as many updates of another table.
func (f *fixture) foreign(b *testing.B, u build, n int) {
	b.Helper()
	f.Start(b)
	f.fill(b, 2_000, 10)
	f.awaitSent(b)
	f.pause(b)
	f.amongForeign(b, n)
	used, allocated := f.usage(b), f.allocations(b)
	profiled := f.profile(b, fmt.Sprintf("foreign-%s-%s", f.db.Flavor, u.name))
	testkit.Must(b, f.Client().Resume(b.Context()))
	f.awaitSent(b)
	cpu := float64((f.usage(b).cpu - used.cpu).Microseconds()) / float64(n)
	b.ReportMetric(cpu, "cpu-µs/msg")
	b.ReportMetric((f.allocations(b)-allocated)/float64(n), "allocs/msg")
	u.measured("foreign-cpu", cpu)
	profiled()
	f.Stop(b)
}

// stock creates the table of the other application. The server no longer syncs, because its log is only read.
func (l *load) stock(b testing.TB, db *testkit.Database) {
	b.Helper()
	testkit.Exec(b, l.table.DB, "CREATE TABLE stock (id INT PRIMARY KEY, held INT NOT NULL, note VARCHAR(300) NOT NULL)")
	testkit.Exec(b, l.table.DB, "INSERT INTO stock SELECT seq, 0, REPEAT('n', 200) FROM (WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 100) SELECT seq FROM n) AS list")
	testkit.Exec(b, db.Root(), "SET GLOBAL sync_binlog = 0, GLOBAL innodb_flush_log_at_trx_commit = 0")
}

// amongForeign commits n rows and ten times as many updates of the other table, each a transaction, over eight connections and four.
func (l *load) amongForeign(b testing.TB, n int) {
	b.Helper()
	var group sync.WaitGroup
	for k := range 8 {
		group.Go(func() {
			for i := range 10 * n / 8 {
				if _, err := l.table.DB.ExecContext(context.Background(), "UPDATE stock SET held = held + 1 WHERE id = ?", 1+(8*i+k)%100); err != nil {
					b.Error(err)
				}
			}
		})
	}
	l.fill(b, n, 1)
	group.Wait()
}
