package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// BenchmarkTableBacklog starts a relay for the first time on a table full of PENDING rows: the sweep publishes all of them, next
// to the server and, on MySQL, with 20 ms between each statement and its answer, as over a network. Each row is written twice,
// for its claim and for SENT; of-ceiling compares the published rows with those that the server alone marks as SENT over one
// connection right afterwards.
func BenchmarkTableBacklog(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		for _, way := range []time.Duration{0, 10 * time.Millisecond} {
			if way > 0 && flavor != testkit.MySQL {
				continue
			}
			b.Run(fmt.Sprintf("%s/rtt=%v", flavor, 2*way), func(b *testing.B) {
				f := newFixtureBehind(b, way, flavor, "kafka")
				list := builds()
				if way > 0 {
					list = list[:1] // the table has the figures without a network
				}
				f.hide(b, share(100_000)) // a new server is slower, which only the first build would meet
				apply(b, f.store(b), f.batches(b), 1)
				f.each(b, list, func(b *testing.B, u build) {
					for b.Loop() {
						if rate := f.tableBacklog(b, share(100_000)); way == 0 {
							u.measured("sweep-"+string(flavor), rate)
						}
					}
				})
			})
		}
	}
}

// hide fills the table and prevents that the log delivers the rows.
func (f *fixture) hide(b *testing.B, n int) {
	b.Helper()
	testkit.Exec(b, f.table.DB, "TRUNCATE "+f.table.Name())
	f.fill(b, n, 100)
	testkit.Must(b, f.db.Purge(b.Context()))
	testkit.Must(b, os.RemoveAll(f.StateDir()))
}

// tableBacklog runs a relay without a state until it has published the table.
func (f *fixture) tableBacklog(b *testing.B, n int) (perSecond float64) {
	b.StopTimer()
	defer b.StartTimer()
	f.hide(b, n)
	b.StartTimer()
	began := time.Now()
	f.Start(b)
	profiled := f.profile(b, fmt.Sprintf("sweep-%s", f.db.Flavor))
	f.awaitSent(b)
	took, used := time.Since(began), f.usage(b)
	b.StopTimer()
	profiled()
	f.Stop(b)
	b.ReportMetric(float64(n)/took.Seconds(), "rows/s")
	b.ReportMetric(float64(used.cpu.Microseconds())/float64(n), "cpu-µs/msg")
	batches := f.batches(b)
	testkit.Exec(b, f.table.DB, "UPDATE "+f.table.Name()+" SET status = 0")
	began = time.Now()
	apply(b, f.store(b), batches, 1)
	b.ReportMetric(time.Since(began).Seconds()/took.Seconds(), "of-ceiling")
	return float64(n) / took.Seconds()
}

// BenchmarkFreshBesideBacklog commits 200 rows per second during the sweep of a backlog in the table, and then alone, in one run
// of one relay; then during the SQL of such a sweep of a table that is not the relay's, to measure the effect of the server's
// work alone. It reports the 99th percentiles of commit to acknowledgement, as the relay measures it, and their ratios to the one
// alone.
func BenchmarkFreshBesideBacklog(b *testing.B) {
	const perSecond = 200
	waiting := share(300_000)
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newFixture(b, flavor, "fake")
		for b.Loop() {
			b.StopTimer()
			f.hide(b, waiting)
			f.Start(b)
			f.AwaitConnected(b)
			b.StartTimer()
			began := time.Now()
			during := f.p99(b, perSecond, func() bool { return f.waits(b, 20_000) })
			took := time.Since(began)
			f.awaitSent(b)
			alone := f.p99(b, perSecond, func() bool { return true })
			duringSQL := f.duringSQL(b, perSecond, waiting)
			f.Stop(b)
			b.ReportMetric(during, "p99-ms-during")
			b.ReportMetric(alone, "p99-ms-alone")
			b.ReportMetric(duringSQL, "p99-ms-during-sql")
			b.ReportMetric(during/alone, "ratio")
			b.ReportMetric(duringSQL/alone, "ratio-sql")
			measured("fresh-p99", during/alone)
			measured("fresh-p99-sql", duringSQL/alone)
			b.ReportMetric(took.Seconds(), "during-s")
		}
	})
}

// waits reports whether at least this number of rows is PENDING.
func (l *load) waits(b *testing.B, atLeast int) bool {
	b.Helper()
	var n int
	testkit.Must(b, l.table.DB.QueryRow("SELECT COUNT(*) FROM (SELECT 1 FROM "+l.table.Name()+" WHERE status = 0 LIMIT ?) AS t", atLeast).Scan(&n))
	return n == atLeast
}

// duringSQL returns the 99th percentile of fresh rows while this process runs the SQL of a sweep with n rows of another table.
func (f *fixture) duringSQL(b *testing.B, perSecond rate.Limit, n int) float64 {
	b.Helper()
	other := load{db: f.db, table: f.table.Like(b, "another"), topic: topic}
	other.fill(b, n, 100)
	store := other.store(b)
	f.pace(b, 100, perSecond)
	f.awaitSent(b) // behind the other table's rows in the log
	done := make(chan struct{})
	go func() {
		defer close(done)
		other.sweep(b, store)
	}()
	p99 := f.p99(b, perSecond, func() bool { return other.waits(b, 20_000) })
	<-done
	return p99
}
