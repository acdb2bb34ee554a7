package retention

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// several is a database with several tables, by name. What is asked of the server is that of the first one.
type several struct {
	*rows
	more map[string]*rows
}

func (s several) of(table string) *rows {
	if r := s.more[table]; r != nil {
		return r
	}
	return s.rows
}

func (s several) Expired(ctx context.Context, table, after string, of []table.Expiry) (table.ExpiredPage, error) {
	return s.of(table).Expired(ctx, table, after, of)
}

func (s several) Expire(ctx context.Context, table string, e table.Expiry, ids []string) (table.Left, error) {
	return s.of(table).Expire(ctx, table, e, ids)
}

// The window closes before all old rows of a table have left: those of the next table have left all the same, and the pass continues where it was.
func TestOneTableDoesNotTakeTheWholeWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const other = "shop.other"
		first, second := newRows(10_000, outbox.Sent, 8*day), newRows(500, outbox.Sent, 8*day)
		first.took, second.took = 20*time.Second, 20*time.Second // and pauses of a minute: 90 batches in the window
		cfg := Config{
			Tables: []string{name, other}, Expiries: map[string][]table.Expiry{name: {week}, other: {week}}, Window: Window{2 * time.Hour, 4 * time.Hour}, Batch: 50,
		}
		x := New(cfg, several{first, map[string]*rows{other: second}}, zap.NewNop(), prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- x.Run(ctx) }()
		wait(4*time.Hour + time.Minute)
		if first.len() == 0 || first.len() > 6500 || second.len() != 0 {
			t.Errorf("%d and %d rows stay after the first window", first.len(), second.len())
		}
		for id := range 10_000 - first.len() {
			if first.table[id+1] != nil {
				t.Fatalf("row %d stays before others that have left", id+1)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
