package bench

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/harm"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkHarm measures the relay's effect on the application: eight connections write business and outbox rows at REPEATABLE
// READ on the same server: alone, when nothing reads the log; next to a process that only tails and produces; and next to the relay. Then the
// same next to each of the two while it works off a backlog.
func BenchmarkHarm(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newFixture(b, flavor, "kafka")
		f.warm(b, 500, 500)
		f.Stop(b)
		app := harm.New(b, f.table, topic, "harm")
		const pause = 10 * time.Millisecond
		span := func(elapsed time.Duration) bool { return elapsed < 15*time.Second }
		app.Run(b, pause, func(elapsed time.Duration) bool { return elapsed < 3*time.Second })
		for b.Loop() {
			report := func(what string, r harm.Result) {
				b.Helper()
				for _, err := range r.Errors {
					b.Error(err)
				}
				b.ReportMetric(float64(r.Percentile(.5).Microseconds())/1000, "p50-ms-"+what)
				b.ReportMetric(float64(r.Percentile(.99).Microseconds())/1000, "p99-ms-"+what)
			}
			report("alone", app.Run(b, pause, span))
			tails, end := f.startTail(b, relay.LogEnd(b, f.table.DB), 1)
			report("tail", app.Run(b, pause, span))
			testkit.Must(b, <-tails)
			end()
			f.Start(b)
			f.awaitSent(b)
			report("relay", app.Run(b, pause, span))
			f.awaitSent(b)
			f.Stop(b)

			n := share(backlog)
			from := relay.LogEnd(b, f.table.DB)
			f.fill(b, n, 10)
			drained, end := f.startTail(b, from, n)
			report("tail-drain", during(b, app, pause, func() { testkit.Must(b, <-drained) }))
			end()
			f.Start(b)
			report("relay-drain", during(b, app, pause, func() {
				testkit.WaitFor(b, 10*time.Minute, "the backlog to be SENT", func() bool {
					return f.histogram(b, "settle_latency_seconds").GetSampleCount() >= uint64(n)
				})
			}))
			f.awaitSent(b)
			f.Stop(b)
		}
	})
}

// during runs the application until wait returns.
func during(b *testing.B, app *harm.Application, pause time.Duration, wait func()) harm.Result {
	b.Helper()
	var over atomic.Bool
	result := make(chan harm.Result)
	go func() { result <- app.Run(b, pause, func(time.Duration) bool { return !over.Load() }) }()
	wait()
	over.Store(true)
	return <-result
}
