package fallback

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// lagging is a replica: it returns an older state of the table.
type lagging struct {
	*world
	by  time.Duration
	err error // instead of an answer

	mu    sync.Mutex
	asked int
	past  []snapshot
}

type snapshot struct {
	at   time.Time
	rows map[int]*row
}

// follow copies the table every second until the end of the test.
func (l *lagging) follow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			rows := map[int]*row{}
			l.alter(func() {
				for id, r := range l.rows {
					seen := *r
					rows[id] = &seen
				}
			})
			l.mu.Lock()
			l.past = append(l.past, snapshot{time.Now(), rows})
			l.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	t.Cleanup(func() { cancel(); following.Wait() })
	synctest.Wait()
}

func (l *lagging) Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.err != nil {
		return nil, after, l.err
	}
	shown := newWorld()
	for i := len(l.past) - 1; i >= 0; i-- {
		if time.Since(l.past[i].at) >= l.by {
			shown.rows = l.past[i].rows
			break
		}
	}
	return shown.Due(ctx, name, after, q)
}

// times returns how often each row was published.
func (b *bench) times() map[int]int {
	times := map[int]int{}
	for _, id := range b.got() {
		times[id]++
	}
	return times
}

// D12: a replica that is five minutes behind, or has stopped, causes no copy and no loss, and saves the primary most of the
// queries.
func TestD12_AReplicaThatLags(t *testing.T) {
	for name, c := range map[string]struct{ by, within time.Duration }{
		"five minutes":                {5 * time.Minute, 5*time.Minute + 2*time.Minute},
		"its replication has stopped": {24 * time.Hour, primaryEvery*30*time.Second + 2*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				l := &lagging{world: w, by: c.by}
				l.follow(t)
				b := startWith(t, w, Config{Replica: l})
				time.Sleep(2 * time.Second) // the first sweep
				const rows = 100
				for id := range rows {
					w.insert(&row{id: id + 1, topic: "orders"})
					time.Sleep(7 * time.Second)
				}
				time.Sleep(c.within)
				times := b.times()
				for id := range rows {
					if n := times[id+1]; n != 1 {
						t.Errorf("row %d went out %d times", id+1, n)
					}
				}
				if c.by < time.Hour && look(w, &w.pages) > look(w, &l.asked)/(primaryEvery-2) {
					t.Errorf("the primary was read %d times, the replica %d times", w.pages, l.asked)
				}
				if swept := len(look(w, &w.sweeps)); swept > look(w, &w.pages) {
					t.Errorf("%d complete sweeps of %d on the primary", swept, w.pages)
				}
			})
		})
	}
}

// A triggered sweep looks for rows that a replica may not have: it reads the primary.
func TestTriggeredSweepsReadThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := &lagging{world: w, by: time.Hour}
		b := startWith(t, w, Config{Replica: l})
		time.Sleep(40 * time.Second)
		w.insert(&row{id: 1, topic: "orders"})
		b.Trigger()
		want(t, "at once", b.got(), 1)
	})
}

// A replica that does not answer delays no row: the sweep reads the primary. The log says so once.
func TestReplicaThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := &lagging{world: w, err: errGone}
		l.follow(t)
		b := startWith(t, w, Config{Replica: l})
		time.Sleep(2 * time.Second)
		w.insert(old(1))
		time.Sleep(31 * time.Second)
		want(t, "with the next sweep", b.got(), 1)
		time.Sleep(3 * time.Minute)
		if n := b.logs.FilterMessageSnippet("the sweep reads the primary").Len(); n != 1 {
			t.Errorf("it is said %d times", n)
		}
		var counted dto.Metric
		if err := b.metrics.replicaErrors.Write(&counted); err != nil || counted.GetCounter().GetValue() < 5 {
			t.Errorf("counted %v, %v", &counted, err)
		}
		l.mu.Lock()
		l.err = nil
		l.mu.Unlock()
		time.Sleep(time.Minute)
		if b.logs.FilterMessageSnippet("returns the rows again").Len() != 1 {
			t.Error("it is not said that the replica answers again")
		}
	})
}
