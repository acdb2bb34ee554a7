package bench

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkDatabase measures what the relay costs the database for each row, at rates of single INSERTs: statements and commits for statuses, syncs of the
// server's logs, bytes of the binlog and of the redo log, rows read, CPU of the server; and the duration of the application's INSERTs. For comparison
// the same without a relay.
func BenchmarkDatabase(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newFixture(b, flavor, "fake")
		f.warm(b, share(2_000), 500)
		f.Stop(b)
		for _, perSecond := range []rate.Limit{10, 100, 500, 2000} {
			n := share(int(max(300, 10*perSecond)))
			b.Run(fmt.Sprint(perSecond), func(b *testing.B) {
				b.Run("alone", func(b *testing.B) {
					for b.Loop() {
						f.cost(b, n, perSecond, func() {})
					}
				})
				testkit.Exec(b, f.table.DB, "DELETE FROM "+f.table.Name())
				f.each(b, builds(), func(b *testing.B, _ build) {
					f.Start(b)
					for b.Loop() {
						f.cost(b, n, perSecond, func() { f.awaitSent(b) })
					}
					f.Stop(b)
				})
			})
		}
		b.Run("drain", func(b *testing.B) { f.costOfDrain(b) })
	})
}

// costOfDrain is what a row of a backlog in the log costs the server: with a process that reads, produces and writes SENT, with nothing else,
// and with each build of the relay.
func (f *fixture) costOfDrain(b *testing.B) {
	n := share(backlog)
	testkit.Exec(b, f.table.DB, "DELETE FROM "+f.table.Name())
	b.Run("bare", func(b *testing.B) {
		bare := &logFixture{load: f.load, from: relay.LogEnd(b, f.table.DB)}
		out := client(b, f.broker)
		bare.fill(b, n, 10)
		f.next = bare.next
		for b.Loop() {
			report := f.counted(b, n)
			bare.bareDrain(b, out, f.store(b), n)
			report()
		}
		testkit.Must(b, out.Close(b.Context()))
	})
	f.each(b, builds(), func(b *testing.B, _ build) {
		f.Start(b)
		f.Stop(b)
		for b.Loop() {
			f.fill(b, n, 10)
			report := f.counted(b, n)
			f.Start(b)
			f.awaitSent(b)
			report()
			f.Stop(b)
		}
	})
}

// counters are the server's that are reported, by the name of their figure.
var counters = map[string][]string{
	"updates/msg":   {"Com_update", "Com_update_multi"},
	"syncs/msg":     {"Innodb_os_log_fsyncs"},
	"redo-B/msg":    {"Innodb_os_log_written"},
	"rows-read/msg": {"Innodb_rows_read"},
}

// cost commits rows at a rate and reports what each has cost the server until after returns.
func (f *fixture) cost(b *testing.B, n int, perSecond rate.Limit, after func()) {
	b.Helper()
	report := f.counted(b, n)
	_, _, took := f.pace(b, n, perSecond)
	after()
	report()
	slices.Sort(took)
	for name, at := range map[string]int{"insert-p50-ms": len(took) / 2, "insert-p99-ms": len(took) * 99 / 100} {
		b.ReportMetric(float64(took[at].Microseconds())/1000, name)
	}
}

// counted reads the server's counters, and returns a function that reports what each of n rows has cost since.
func (f *fixture) counted(b *testing.B, n int) (report func()) {
	b.Helper()
	pid, before, begun := f.serverPID(b), f.serverCounters(b), f.binlogBytes(b)
	used, start := usageOf(b, pid), time.Now()
	return func() {
		b.Helper()
		now, counted := usageOf(b, pid), f.serverCounters(b)
		each := func(total float64) float64 { return total / float64(n) }
		for name := range counted {
			b.ReportMetric(each(counted[name]-before[name]), name)
		}
		b.ReportMetric(float64(n)/time.Since(start).Seconds(), "rows/s")
		b.ReportMetric(each(f.binlogBytes(b)-begun), "binlog-B/msg")
		b.ReportMetric(each(float64((now.cpu - used.cpu).Microseconds())), "server-µs/msg")
	}
}

func (f *fixture) serverPID(b testing.TB) (pid int) {
	b.Helper()
	var dir, file string
	testkit.Must(b, f.db.Root().QueryRow("SELECT @@datadir, @@pid_file").Scan(&dir, &file))
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	text, err := os.ReadFile(file)
	testkit.Must(b, err)
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	testkit.Must(b, err)
	return pid
}

func (f *fixture) serverCounters(b testing.TB) map[string]float64 {
	b.Helper()
	out := map[string]float64{}
	for name, variables := range counters {
		for _, variable := range variables {
			var key string
			var value float64
			err := f.db.Root().QueryRow("SHOW GLOBAL STATUS LIKE '"+variable+"'").Scan(&key, &value)
			if errors.Is(err, sql.ErrNoRows) {
				continue // MariaDB does not count syncs
			}
			testkit.Must(b, err)
			out[name] += value
		}
	}
	return out
}

// binlogBytes is the size of the server's binlogs.
func (f *fixture) binlogBytes(b testing.TB) (total float64) {
	b.Helper()
	rows, err := f.db.Root().Query("SHOW BINARY LOGS")
	testkit.Must(b, err)
	defer rows.Close()
	columns, err := rows.Columns()
	testkit.Must(b, err)
	for rows.Next() {
		var name string
		var size float64
		var encrypted *string
		into := []any{&name, &size, &encrypted}
		testkit.Must(b, rows.Scan(into[:len(columns)]...))
		total += size
	}
	testkit.Must(b, rows.Err())
	return total
}
