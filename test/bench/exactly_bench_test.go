package bench

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkExactlyOnce measures what sink.kafka.exactly_once costs, next to the usual way in one run, to a consumer of committed records:
// latency and CPU at 500 rows a second, and the drain of a backlog in the log until it is received.
func BenchmarkExactlyOnce(b *testing.B) {
	f := newFixture(b, testkit.MySQL, "kafka")
	kafka := f.broker.(relay.Kafka)
	arrivals := consume(b, kafka.Addr(), topic, idOfHeader("message_id"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for _, way := range []struct{ name, sink string }{
		{"usual", kafka.Sink()},
		{"exactly-once", relay.ExactlyOnceSink(b, kafka.Kafka, "bench")},
	} {
		f.Relay = relay.New(b, relay.Options{Source: f.db.Addr(), Tables: []*relay.Table{f.table}, Sink: way.sink, Extra: "fallback: {interval: 30s}"})
		b.Run(way.name, func(b *testing.B) {
			f.warm(b, share(4_000), 500)
			for b.Loop() {
				f.received(b, arrivals)
			}
			f.Stop(b)
		})
	}
}

// received runs a relay at a rate, and then on a backlog.
func (f *fixture) received(b *testing.B, arrivals *consumer) {
	b.Helper()
	used := f.usage(b)
	n := share(7_500)
	rows, committed, _ := f.pace(b, n, 500)
	f.awaitSent(b)
	b.ReportMetric(float64((f.usage(b).cpu-used.cpu).Microseconds())/float64(n), "cpu-µs/msg")
	report(b, "consumer", arrivals.after(b, rows, committed))
	f.Stop(b)

	n = share(backlog)
	f.fill(b, n, 10)
	arrivals.forget()
	began := time.Now()
	f.Start(b)
	testkit.WaitFor(b, 10*time.Minute, "the backlog to be received", func() bool { return arrivals.seen() >= n })
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "received/s")
	f.awaitSent(b)
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "sent/s")
	b.ReportMetric(float64(f.usage(b).cpu.Microseconds())/float64(n), "drain-cpu-µs/msg")
}
