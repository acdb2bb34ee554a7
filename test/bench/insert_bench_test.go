package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// BenchmarkCeilingInsert reports how many rows an application can insert into a durable server without a relay, by connections
// and rows per transaction. All variants run alternately, twice, so that other load affects them equally.
func BenchmarkCeilingInsert(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		l := newLoad(b, durable(b, flavor), preset)
		const rows = 20_000
		took := map[string]time.Duration{}
		for b.Loop() {
			for range 2 {
				for _, connections := range []int{4, 16, 64} {
					for _, size := range []int{10, 100} {
						began := time.Now()
						l.commit(b, commits{rows: rows, size: size, connections: connections})
						took[fmt.Sprintf("%dx%d-rows/s", connections, size)] += time.Since(began)
					}
				}
			}
		}
		for name, d := range took {
			b.ReportMetric(2*rows/d.Seconds(), name)
		}
	})
}
