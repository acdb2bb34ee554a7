package bench

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkCeilingDrain does the minimum of a drain with the relay's own parts: it reads the log of BenchmarkDrain's backlog,
// produces each row at once, and writes SENT over two connections. It looks nothing up, and has no journal, no order of the keys
// and no position. So this is the machine's limit for a drain whose server, broker and relay share it.
func BenchmarkCeilingDrain(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newLogFixture(b, flavor)
		out := client(b, brokers["kafka"](b))
		store := f.store(b)
		n := share(backlog)
		f.fill(b, n, 10)
		for b.Loop() {
			b.StopTimer()
			if flavor == testkit.MySQL { // as BenchmarkDrainLogOnly
				cpu, _ := f.bareDrain(b, out, nil, n)
				measured("bare-log-only-cpu", cpu)
			}
			b.StartTimer()
			cpu, perSecond := f.bareDrain(b, out, store, n)
			b.ReportMetric(perSecond, "rows/s")
			b.ReportMetric(cpu, "cpu-µs/msg")
			measured("bare-drain-"+string(flavor), perSecond)
			measured("bare-drain-cpu-"+string(flavor), cpu)
			b.StopTimer()
			if left := f.table.Count(b, "status <> 2"); left > 0 {
				b.Errorf("%d rows are not SENT", left)
			}
			testkit.Exec(b, f.table.DB, "UPDATE "+f.table.Name()+" SET status = 0")
			b.StartTimer()
		}
		testkit.Must(b, out.Close(b.Context()))
	})
}

// unwritten is the number of rows that may wait for their status, as in a relay.
const unwritten = 10_000

// bareDrain reads n rows, publishes them and, with a store, writes SENT. It returns the CPU of a row in µs and the rows per second.
func (f *logFixture) bareDrain(b *testing.B, out sink.Sink, store *store.Store, n int) (cpu, perSecond float64) {
	b.Helper()
	d := &bareDrain{out: out, free: semaphore.NewWeighted(unwritten), acknowledged: make(chan outbox.Completion, unwritten)}
	done := make(chan int)
	writers := 1
	if store != nil {
		writers = 2
	}
	for range writers {
		go func() {
			for list := d.gather(); len(list) > 0; list = d.gather() {
				if store != nil {
					if refused, err := store.Apply(b.Context(), list); err != nil || len(refused) > 0 {
						b.Errorf("%d refused, %v", len(refused), err)
					}
				}
				d.free.Release(int64(len(list)))
				done <- len(list)
			}
		}()
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	began, used := time.Now(), usageOf(b, os.Getpid())
	go func() { ended <- f.reader(b, d).Run(ctx, f.from) }()
	for left := n; left > 0; {
		left -= <-done
	}
	perSecond = float64(n) / time.Since(began).Seconds()
	cpu = float64((usageOf(b, os.Getpid()).cpu - used.cpu).Microseconds()) / float64(n)
	cancel()
	testkit.Must(b, <-ended)
	close(d.acknowledged)
	return cpu, perSecond
}

// bareDrain publishes the offered rows.
type bareDrain struct {
	discard
	out          sink.Sink
	free         *semaphore.Weighted
	acknowledged chan outbox.Completion // room for all that may be unwritten
}

func (d *bareDrain) Offer(ctx context.Context, txn *outbox.Txn) error {
	if len(txn.Messages) == 0 {
		return nil
	}
	if err := d.free.Acquire(ctx, int64(len(txn.Messages))); err != nil {
		return err
	}
	d.out.Send(txn.Messages, func(results []sink.Result) {
		for _, r := range results {
			if r.Class == outbox.ClassNone { // else the row stays PENDING, and the benchmark does not end
				d.acknowledged <- outbox.Completion{Identity: r.Message.Identity, Action: outbox.ActionMarkSent}
			}
		}
	})
	return nil
}

// gather returns the next statement's rows: 500, or the rows after 20 ms; none at the end.
func (d *bareDrain) gather() (list []outbox.Completion) {
	first, ok := <-d.acknowledged
	if !ok {
		return nil
	}
	list = append(list, first)
	for end := time.After(20 * time.Millisecond); len(list) < 500; {
		select {
		case next, ok := <-d.acknowledged:
			if !ok {
				return list
			}
			list = append(list, next)
		case <-end:
			return list
		}
	}
	return list
}

// logFixture is a table and the start of its log, without a relay.
type logFixture struct {
	load
	from outbox.Position
}

func newLogFixture(b *testing.B, flavor testkit.Flavor) *logFixture {
	b.Helper()
	l := newLoad(b, durable(b, flavor), preset)
	return &logFixture{load: l, from: relay.LogEnd(b, l.table.DB)}
}

func (f *logFixture) reader(b *testing.B, to canal.Handler) *canal.Reader {
	return canal.New(canal.Config{
		Server: server.Config{Address: f.db.Addr(), User: "root"}, Tables: []*table.Table{f.mapped(b)},
	}, to, zap.NewNop(), prometheus.NewRegistry())
}

// read reads n rows and drops them.
func (f *logFixture) read(b *testing.B, n int) {
	b.Helper()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.reader(b, &discard{want: n, done: done}).Run(ctx, f.from) }()
	<-done
	cancel()
	testkit.Must(b, <-ended)
}
