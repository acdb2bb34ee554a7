package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkCeilingStatus writes SENT to rows as the relay does, from memory, over one connection and over two that share the
// keys: the limit of the server alone, and the duration of a statement, which is how long it locks its rows.
func BenchmarkCeilingStatus(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		f := newLoad(b, durable(b, flavor), preset)
		store := f.store(b)
		const n = 100_000
		f.fill(b, n, 100)
		batches := f.batches(b)
		for _, connections := range []int{1, 2, 1, 2} {
			b.Run(fmt.Sprintf("%s/connections=%d", flavor, connections), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					testkit.Exec(b, f.table.DB, "UPDATE "+f.table.Name()+" SET status = 0")
					b.StartTimer()
					began, used := time.Now(), usageOf(b, os.Getpid())
					took := apply(b, store, batches, connections)
					b.ReportMetric(n/time.Since(began).Seconds(), "rows/s")
					measured(fmt.Sprintf("updates-%s-%d", flavor, connections), n/time.Since(began).Seconds())
					ownCPU(b, "update-cpu-"+string(flavor), used, n)
					report(b, "statement", took)
				}
			})
		}
	}
}

// writerTo returns a pool for statements that write.
func writerTo(b *testing.B, db *testkit.Database) *sql.DB {
	b.Helper()
	writer, err := server.Open(server.Config{Address: db.Addr(), User: "root"}, nil, server.Session{Writes: true})
	testkit.Must(b, err)
	b.Cleanup(func() { testkit.Must(b, writer.Close()) })
	return writer
}

// store writes to the table as the relay does.
func (f *load) store(b *testing.B) *store.Store {
	return store.New(writerTo(b, f.db), []*table.Table{f.mapped(b)}, nil, nil)
}

// mapped is the table as the relay maps it.
func (f *load) mapped(b *testing.B) *table.Table {
	b.Helper()
	mapped, err := mapTable(b.Context(), f.table.DB, f.table.FullName())
	testkit.Must(b, err)
	return mapped
}

// mapTable maps a table of the preset, schema.table, as the relay does.
func mapTable(ctx context.Context, db *sql.DB, name string) (*table.Table, error) {
	mapping, err := table.Preset(preset)
	if err != nil {
		return nil, err
	}
	mapping.Schema, mapping.Name, _ = strings.Cut(name, ".")
	mapped, _, err := table.Load(ctx, db, mapping)
	return mapped, err
}

// apply writes all batches: each connection writes its share of them one after the other.
func apply(b *testing.B, store *store.Store, batches [][]outbox.Completion, connections int) (took []time.Duration) {
	var group sync.WaitGroup
	var mu sync.Mutex
	for share := range slices.Chunk(batches, len(batches)/connections) {
		group.Go(func() {
			for _, batch := range share {
				began := time.Now()
				refused, err := store.Apply(b.Context(), batch)
				if err != nil || len(refused) > 0 {
					b.Errorf("%d refused, %v", len(refused), err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return took
}

// batches are completions of all rows of the table, 500 at a time, in the order of the keys.
func (f *load) batches(b *testing.B) [][]outbox.Completion {
	all, err := relay.Select(b.Context(), f.table.DB, func(c *outbox.Completion) []any {
		c.Identity.Table, c.Action = f.table.Schema+".t_local_message", outbox.ActionMarkSent
		return []any{&c.Identity.ID, &c.Identity.MessageID}
	}, "SELECT id, CONCAT(biz_type, ':', biz_key) FROM "+f.table.Name()+" ORDER BY id")
	testkit.Must(b, err)
	return slices.Collect(slices.Chunk(all, 500))
}
