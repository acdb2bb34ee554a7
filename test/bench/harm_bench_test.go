package bench

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/harm"
)

// BenchmarkHarm measures the relay's effect on the application: eight connections write business and outbox rows at REPEATABLE
// READ, first alone and then with the relay, on the same server. Without the relay nothing reads the log.
func BenchmarkHarm(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newFixture(b, flavor, "kafka")
		app := harm.New(b, f.table, topic, "harm")
		span := func(elapsed time.Duration) bool { return elapsed < 15*time.Second }
		warm := func(elapsed time.Duration) bool { return elapsed < 3*time.Second }
		const pause = 10 * time.Millisecond
		app.Run(b, pause, warm)
		for b.Loop() {
			alone := app.Run(b, pause, span)
			f.Start(b)
			f.awaitSent(b)
			app.Run(b, pause, warm)
			during := app.Run(b, pause, span)
			f.awaitSent(b)
			f.Stop(b)
			for _, err := range append(alone.Errors, during.Errors...) {
				b.Error(err)
			}
			b.ReportMetric(float64(alone.Rows)/15, "rows/s-alone")
			b.ReportMetric(float64(during.Rows)/15, "rows/s-during")
			for name, p := range map[string]float64{"p50": .5, "p99": .99} {
				b.ReportMetric(float64(alone.Percentile(p).Microseconds())/1000, name+"-ms-alone")
				b.ReportMetric(float64(during.Percentile(p).Microseconds())/1000, name+"-ms-during")
			}
		}
	})
}
