package bench

import (
	"slices"
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
		f.warm(b, 500, 500)
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
	broker := brokers["kafka"](b).(relay.Kafka)
	testkit.Must(b, broker.CreateTopic(b.Context(), layouts.EventTopic+topic, 8, nil))
	f := &fixture{load: newLoad(b, durable(b, testkit.MySQL), logOnly.Table), broker: broker}
	f.relay(b, f.db.Addr())
	f.each(b, builds(), func(b *testing.B, u build) {
		for b.Loop() {
			b.StopTimer()
			n := share(backlog)
			f.Start(b)
			f.Stop(b)
			f.fill(b, n, 10)
			b.StartTimer()
			began := time.Now()
			f.Start(b)
			profiled := f.profile(b, "drain-log-only-"+u.name)
			testkit.WaitFor(b, 10*time.Minute, "every row published", func() bool { return f.total(b, "messages_total") >= float64(n) })
			took, used := time.Since(began), f.usage(b)
			b.StopTimer()
			b.ReportMetric(float64(n)/took.Seconds(), "rows/s")
			b.ReportMetric(float64(used.cpu.Microseconds())/float64(n), "cpu-µs/msg")
			u.measured("log-only-cpu", float64(used.cpu.Microseconds())/float64(n))
			profiled()
			f.Stop(b)
			b.StartTimer()
		}
	})
}
