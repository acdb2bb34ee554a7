package bench

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkStart reports how long after the start of its process a relay has delivered a row that was committed while it was stopped.
func BenchmarkStart(b *testing.B) {
	f := newFixture(b, testkit.MySQL, "kafka")
	arrivals := consume(b, f.broker.(relay.Kafka).Addr(), topic, idOfHeader("message_id"))
	f.each(b, builds(), func(b *testing.B, u build) {
		f.Start(b)
		f.pace(b, 500, 500)
		f.awaitSent(b)
		for b.Loop() {
			var took []time.Duration
			for range 9 {
				f.Stop(b)
				rows, _, _ := f.pace(b, 1, 500)
				began := time.Now()
				f.Start(b)
				took = append(took, arrivals.after(b, rows, []time.Time{began})...)
				f.awaitSent(b)
			}
			slices.Sort(took)
			median := took[len(took)/2].Seconds()
			b.ReportMetric(median, "first-s")
			u.measured("start", median)
		}
		f.Stop(b)
	})
}

// BenchmarkDrainLogOnly is BenchmarkDrain of a table without a status: nothing is looked up or written.
func BenchmarkDrainLogOnly(b *testing.B) {
	db := testkit.NewDatabase(b, testkit.DatabaseOptions{Flavor: testkit.MySQL, Durable: true})
	broker := brokers["kafka"](b).(relay.Kafka)
	testkit.Must(b, broker.CreateTopic(b.Context(), "outbox.event."+topic, 8, nil))
	pool := db.Connect(b, db.CreateSchema(b))
	pool.SetMaxIdleConns(16)
	f := &fixture{db: db, broker: broker, admin: testkit.FreeAddress(b)}
	f.table = relay.NewLayout(b, pool, schemaOf(b, pool), layouts.LogOnly()[0])
	f.Relay = relay.New(b, relay.Options{
		Source: db.Addr(), Tables: []*relay.Table{f.table}, Sink: broker.Sink(), Extra: fmt.Sprintf("admin: {listen: %q}", f.admin),
	})
	f.each(b, builds(), func(b *testing.B, u build) {
		for b.Loop() {
			b.StopTimer()
			n := share(backlog)
			f.Start(b)
			f.Stop(b)
			f.fillLogOnly(b, n)
			b.StartTimer()
			began := time.Now()
			f.Start(b)
			testkit.WaitFor(b, 10*time.Minute, "every row published", func() bool { return f.total(b, "canal_outbox_messages_total") >= float64(n) })
			took, used := time.Since(began), f.usage(b)
			b.StopTimer()
			b.ReportMetric(float64(n)/took.Seconds(), "rows/s")
			b.ReportMetric(float64(used.cpu.Microseconds())/float64(n), "cpu-µs/msg")
			u.measured("log-only-cpu", float64(used.cpu.Microseconds())/float64(n))
			f.Stop(b)
			b.StartTimer()
		}
	})
}

// fillLogOnly commits n rows in transactions of ten, over four connections.
func (f *fixture) fillLogOnly(b testing.TB, n int) {
	b.Helper()
	const size = 10
	body := `"` + strings.Repeat("0123456789", bodySize/10) + `"`
	work := make(chan int)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for first := range work {
				var query string
				var all []any
				for i := range size {
					one, args := f.table.Layout.Insert(first+i, topic, body)
					_, places, _ := strings.Cut(one, " VALUES ")
					if query += ", " + places; i == 0 {
						query = one
					}
					all = append(all, args...)
				}
				if _, err := f.table.DB.Exec(query, all...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range n / size {
		work <- f.next
		f.next += size
	}
	close(work)
	group.Wait()
}
