package bench

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// oldRows are SENT rows of 500-byte bodies that leave the table during live traffic.
const oldRows = 1_000_000

// BenchmarkRetention commits 500 rows per second, first alone and then while a million old rows are deleted or archived, and
// reports both 99th percentiles of commit to acknowledgement, as the relay measures it, their ratio, and how fast the rows leave.
// It is one run of one relay: the window of its retention is closed, and a pass is requested.
func BenchmarkRetention(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		for _, how := range []string{"sent", "archive"} {
			b.Run(fmt.Sprintf("%s-%s", flavor, how), func(b *testing.B) {
				later := time.Now().Add(12 * time.Hour)
				f := newFixture(b, flavor, "kafka", fmt.Sprintf("retention: {%s: 1h, window: %q}", how, later.Format("15:04-")+later.Add(time.Hour).Format("15:04")))
				if _, text, code := f.Command(b, "migrate"); code != 0 {
					b.Fatal(text)
				}
				for b.Loop() {
					b.StopTimer()
					f.fillOld(b) // first, as in production: the oldest rows have the lowest keys
					f.Start(b)
					f.pace(b, 5_000, 500)
					b.StartTimer()
					alone := f.p99(b, 500, func() bool { return true })
					if err := f.Client().Retention(b.Context()); err != nil {
						b.Fatal(err)
					}
					began, before := time.Now(), f.total(b, "retention_rows_total")
					leaving := func() bool { return f.total(b, "retention_rows_total")-before < oldRows }
					during := f.p99(b, 500, leaving)
					testkit.WaitFor(b, 20*time.Minute, "the old rows to leave", func() bool { return !leaving() })
					took := time.Since(began)
					f.awaitSent(b)
					f.Stop(b)
					b.ReportMetric(alone, "p99-ms-alone")
					b.ReportMetric(during, "p99-ms-during")
					b.ReportMetric(during/alone, "ratio")
					b.ReportMetric(oldRows/took.Seconds(), "rows-left/s")
				}
			})
		}
	}
}

// p99 is of 30 s of traffic, while goesOn returns true.
func (f *fixture) p99(b *testing.B, perSecond rate.Limit, goesOn func() bool) float64 {
	b.Helper()
	const name = "publish_latency_seconds"
	before := f.histogram(b, name)
	for range 30 {
		if !goesOn() {
			break
		}
		f.pace(b, int(perSecond), perSecond)
	}
	return percentile(.99, before, f.histogram(b, name))
}

// fillOld writes SENT rows, without the log.
func (f *fixture) fillOld(b *testing.B) {
	b.Helper()
	c, err := f.table.DB.Conn(b.Context())
	testkit.Must(b, err)
	defer c.Close()
	for _, statement := range []string{"SET SESSION sql_log_bin = 0", "SET SESSION unique_checks = 0"} {
		_, err := c.ExecContext(b.Context(), statement)
		testkit.Must(b, err)
	}
	const batch = 10_000
	for n := 0; n < oldRows; n += batch {
		f.next++
		_, err := c.ExecContext(b.Context(), "INSERT INTO "+f.table.Name()+" (biz_type, biz_key, topic, message_body, status, created_at, last_exec_time) "+
			"SELECT 'old', CONCAT(?, '-', a.n, b.n, c.n, d.n), 'orders', REPEAT(UUID(), 14), 2, NOW(3) - INTERVAL 9 DAY, NOW(3) - INTERVAL 8 DAY FROM "+
			"("+digitRows+") AS a, ("+digitRows+") AS b, ("+digitRows+") AS c, ("+digitRows+") AS d", f.next)
		testkit.Must(b, err)
	}
	for _, statement := range []string{"SET SESSION sql_log_bin = 1", "SET SESSION unique_checks = 1"} {
		_, err := c.ExecContext(b.Context(), statement)
		testkit.Must(b, err)
	}
}

const digitRows = "SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 " +
	"UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9"
