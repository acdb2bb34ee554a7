package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkCeilingInsert reports how many rows an application can insert into a durable server without a relay, by connections
// and rows per transaction. All variants run alternately, twice, so that other load affects them equally.
func BenchmarkCeilingInsert(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) {
			db := testkit.NewDatabase(b, testkit.DatabaseOptions{Flavor: flavor, Durable: true})
			pool := db.Connect(b, db.CreateSchema(b))
			pool.SetMaxIdleConns(64)
			l := &load{table: relay.NewTable(b, pool, schemaOf(b, pool), "t_local_message"), topic: topic}
			const rows = 20_000
			took := map[string]time.Duration{}
			for b.Loop() {
				for range 2 {
					for _, connections := range []int{4, 16, 64} {
						for _, size := range []int{10, 100} {
							took[fmt.Sprintf("%dx%d-rows/s", connections, size)] += l.insert(b, connections, rows, size)
						}
					}
				}
			}
			for name, d := range took {
				b.ReportMetric(2*rows/d.Seconds(), name)
			}
		})
	}
}

// insert commits n rows in transactions of size, over a number of connections.
func (l *load) insert(b *testing.B, connections, n, size int) time.Duration {
	work := make(chan []relay.Row)
	var group sync.WaitGroup
	began := time.Now()
	for range connections {
		group.Go(func() {
			for rows := range work {
				if err := l.table.Insert(context.Background(), l.table.DB, rows...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range n / size {
		work <- l.rows(size)
	}
	close(work)
	group.Wait()
	return time.Since(began)
}
