package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// way is a relay with its table: one that writes SENT, or one whose table has no status.
type way struct {
	*fixture
	name          string
	write         func(n, size int, perSecond rate.Limit)
	filling       time.Duration // of the backlogs: the application's inserts alone
	cpu, wall     time.Duration // of the drains
	steady        time.Duration // CPU at 500 rows per second
	drained, slow int
	logged        int64
}

const (
	drainRows  = 50_000
	steadyRows = 5_000
)

// BenchmarkWriteBack drains backlogs with two relays on one MySQL server: one writes SENT, the other has the layout
// debezium-outbox and only reads the log. Both run all the time and get the load alternately, so that other load affects both,
// and each skips the other's rows in the log. The result is the ratio. A row counts when the broker has it, and with a status
// when it is SENT.
func BenchmarkWriteBack(b *testing.B) {
	f := newFixture(b, testkit.MySQL, "fake")
	back := &way{fixture: f, name: "sent"}
	back.write = func(n, size int, perSecond rate.Limit) { f.commit(b, n, size, perSecond, f.table.Insert) }
	only := newLogOnly(b, f)
	ways := []*way{back, only, only, back}
	for _, w := range ways[:2] {
		w.Start(b)
		w.write(2_000, 10, rate.Inf)
		w.settled(b)
	}
	for b.Loop() {
		for _, w := range ways {
			w.drain(b)
			used := w.usage(b).cpu
			w.write(steadyRows, 1, 500)
			w.settled(b)
			w.steady, w.slow = w.steady+w.usage(b).cpu-used, w.slow+steadyRows
		}
	}
	for _, w := range ways[:2] {
		b.ReportMetric(float64(w.drained)/w.filling.Seconds(), w.name+"-inserted-rows/s")
		b.ReportMetric(float64(w.drained)/w.wall.Seconds(), w.name+"-rows/s")
		b.ReportMetric(float64(w.cpu.Microseconds())/float64(w.drained), w.name+"-µs/msg")
		b.ReportMetric(float64(w.steady.Microseconds())/float64(w.slow), w.name+"-500/s-µs/msg")
		b.ReportMetric(float64(w.logged)/float64(w.drained), w.name+"-binlog-B/msg")
		b.ReportMetric(float64(w.usage(b).peak)/(1<<20), w.name+"-peak-MiB")
		b.ReportMetric(float64(w.stateBytes(b))/(1<<20), w.name+"-state-MiB")
		b.ReportMetric(float64((&spread{fixture: w.fixture}).connections(b)), w.name+"-sockets")
	}
}

// newLogOnly returns the other relay.
func newLogOnly(b *testing.B, f *fixture) *way {
	const name = "debezium-outbox"
	ddl, err := migrations.DDL(name, name)
	testkit.Must(b, err)
	testkit.Exec(b, f.table.DB, ddl)
	testkit.Exec(b, f.table.DB, "ALTER TABLE `"+name+"` MODIFY payload LONGTEXT NULL") // text as in the other table
	testkit.Must(b, testkit.CreateKafkaTopic(b.Context(), f.broker.(interface{ ListenAddrs() []string }).ListenAddrs()[0], "outbox.event."+topic, 8, nil))
	other := *f
	other.table = &relay.Table{DB: f.table.DB, Schema: f.table.Schema, Preset: name}
	other.admin = testkit.FreeAddress(b)
	other.Relay = relay.New(b, relay.Options{
		Source: f.db.Addr(), Tables: []*relay.Table{other.table}, Sink: f.broker.Sink(), Extra: fmt.Sprintf("admin: {listen: %q}\n", other.admin),
	})
	w := &way{fixture: &other, name: "log-only"}
	insert := func(ctx context.Context, db relay.Execer, rows ...relay.Row) error {
		var args []any
		for _, r := range rows {
			args = append(args, fmt.Sprint(r.BizType, ":", r.Key), topic, r.ShardingKey, r.BizType, string(r.Body))
		}
		_, err := db.ExecContext(ctx, "INSERT INTO `"+name+"` (id, aggregatetype, aggregateid, type, payload) VALUES (?, ?, ?, ?, ?)"+
			strings.Repeat(", (?, ?, ?, ?, ?)", len(rows)-1), args...)
		return err
	}
	w.write = func(n, size int, perSecond rate.Limit) { other.commit(b, n, size, perSecond, insert) }
	return w
}

// commit writes n rows in transactions of size, over four connections.
func (f *fixture) commit(b *testing.B, n, size int, perSecond rate.Limit, insert func(context.Context, relay.Execer, ...relay.Row) error) {
	limit, queue := rate.NewLimiter(perSecond, 1), make(chan []relay.Row)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for rows := range queue {
				if err := insert(context.Background(), f.table.DB, rows...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range n / size {
		testkit.Must(b, limit.Wait(b.Context()))
		queue <- f.rows(size)
	}
	close(queue)
	group.Wait()
}

// settled returns when the broker has every row, and the table shows it if it has a status.
func (w *way) settled(b *testing.B) {
	testkit.WaitFor(b, 10*time.Minute, "every row at the broker", func() bool { return w.total(b, "canal_outbox_messages_total") >= float64(w.next) })
	if w.table.Preset == "t_local_message" {
		w.awaitSent(b)
	}
}

// drain creates a backlog in the log while the relay pauses, and resumes the relay.
func (w *way) drain(b *testing.B) {
	w.pause(b)
	filled := time.Now()
	w.write(drainRows, 10, rate.Inf)
	w.filling += time.Since(filled)
	logged, used, began := w.logBytes(b), w.usage(b).cpu, time.Now()
	testkit.Must(b, w.Client().Resume(b.Context()))
	w.settled(b)
	w.wall += time.Since(began)
	w.cpu += w.usage(b).cpu - used
	w.logged += w.logBytes(b) - logged
	w.drained += drainRows
}

// stateBytes is the size of the state directory.
func (w *way) stateBytes(b *testing.B) (total int64) {
	b.Helper()
	testkit.Must(b, filepath.WalkDir(w.StateDir(), func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !entry.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil { // else it was deleted meanwhile
			total += info.Size()
		}
		return nil
	}))
	return total
}
