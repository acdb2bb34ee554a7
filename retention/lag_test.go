package retention

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// follower is the model of a replica.
type follower struct {
	mu    sync.Mutex
	lag   time.Duration
	still bool
	err   error
	asked int
}

func (f *follower) Lag(context.Context) (time.Duration, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.lag, !f.still, f.err
}

func (f *follower) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Rows wait while the replica is too far behind or its replication is stopped; status and metric say so. A replica that does not
// answer is ignored.
func TestItWaitsForTheReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRows(1000, outbox.Sent, 8*day), &follower{lag: time.Minute}
		r.page = 1000
		x, logs := begin(t, Config{Expiries: of(week), Batch: 10, Replica: f, MaxLag: 10 * time.Second}, r)
		wait(30 * time.Second)
		if r.len() != 1000 || x.State().Paused == "" || value(x.metrics.paused) != 1 || logs.FilterMessageSnippet("no more old rows leave").Len() != 1 {
			t.Fatalf("%d rows, %+v, %v", r.len(), x.State(), logs.All())
		}
		f.set(func() { f.lag = 10 * time.Second })
		wait(3 * time.Second)
		left := r.len()
		if left == 1000 || left < 500 || x.State().Paused != "" || value(x.metrics.paused) != 0 {
			t.Fatalf("%d rows, %+v", left, x.State())
		}
		f.set(func() { f.still = true })
		wait(2 * time.Second)
		left = r.len()
		wait(time.Minute)
		if r.len() != left || x.State().Paused == "" {
			t.Fatalf("%d rows of %d stay, %+v", r.len(), left, x.State())
		}
		f.set(func() { f.still, f.err = false, errors.New("no connection") })
		wait(2 * time.Minute)
		if r.len() != 0 || x.State().Paused != "" || logs.FilterMessageSnippet("does not say how far").Len() != 1 {
			t.Errorf("%d rows stay, %+v, %v", r.len(), x.State(), logs.All())
		}
		if f.asked > 150 {
			t.Errorf("asked %d times in %v", f.asked, 3*time.Minute)
		}
	})
}

// Each table has its own ages; a table without one is not read.
func TestEachTableHasItsAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows(10, outbox.Sent, 8*day)
		r.table[11] = &row{status: outbox.Failed, since: time.Now().Add(-40 * day)}
		for _, c := range []struct {
			of    map[string][]table.Expiry
			stay  int
			reads bool
		}{
			{map[string][]table.Expiry{"shop.other": {week}, name: nil}, 11, false},
			{map[string][]table.Expiry{"shop.other": {week}, name: {failed}}, 10, true},
			{map[string][]table.Expiry{name: {week}}, 0, true},
		} {
			cfg := Config{Tables: []string{name}, Expiries: c.of}
			x := New(cfg, r, zap.NewNop(), prometheus.NewRegistry())
			before := r.asked()
			x.once(t.Context(), true)
			if r.len() != c.stay || (r.asked() > before) != c.reads {
				t.Errorf("%v: %d rows stay, %d looks", c.of, r.len(), r.asked()-before)
			}
		}
		if x := New(Config{Expiries: map[string][]table.Expiry{name: {}}}, r, zap.NewNop(), prometheus.NewRegistry()); !x.Off() {
			t.Error("on, though no table has an age")
		}
	})
}
