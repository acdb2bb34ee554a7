package fallback

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// commit is one transaction of the model's log, with one row.
type commit struct {
	row    int
	hidden bool          // the log does not show the row as an INSERT (XA, statement format)
	late   time.Duration // from its position in the log until the row is visible
}

// reader is a model of the binlog path over a world: it offers the log with a lag and stops at times, and rows take some time in
// the sink.
type reader struct {
	*world
	log  []commit
	read int
}

// offer takes the next transaction like the pipeline: reserve, check by primary key inside the window, publish.
func (r *reader) offer() {
	r.alter(func() {
		c := r.log[r.read]
		r.read++
		r.offered = uint64(r.read)
		row := r.rows[c.row]
		id := outbox.Identity{Table: shop, ID: fmt.Sprint(c.row), MessageID: "m" + fmt.Sprint(c.row)}
		if c.hidden || r.owned[id] {
			return
		}
		if uint64(r.read) <= r.window && (row == nil || row.status != outbox.Pending) {
			return // settled, or deferred because it is not visible yet
		}
		r.owned[id] = true
		go r.deliver(id)
	})
}

func (r *reader) deliver(id outbox.Identity) {
	time.Sleep(30 * time.Millisecond)
	for { // the acknowledgement waits for the row to be visible, as its locking read does
		r.mu.Lock()
		if row := r.rows[atoi(id.ID)]; row != nil {
			r.published = append(r.published, row.id)
			row.status = outbox.Sent
			delete(r.owned, id)
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

// Whatever the lag and the stops of the reader, whatever the log hides and whenever rows become visible: every row is published,
// and none twice, because no process ends here and no answer is lost.
func TestD01_D10_EveryRowIsPublishedOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		type step struct {
			commit  commit
			pause   time.Duration
			stop    time.Duration // of the reader
			trigger bool
		}
		var steps []step
		for i := range rapid.IntRange(1, 40).Draw(r, "commits") {
			steps = append(steps, step{
				commit:  commit{i + 1, rapid.IntRange(0, 4).Draw(r, "hidden") == 0, time.Duration(rapid.IntRange(0, 50).Draw(r, "late")) * time.Millisecond},
				pause:   time.Duration(rapid.SampledFrom([]int{0, 1, 20, 500, 5000}).Draw(r, "pause")) * time.Millisecond,
				stop:    time.Duration(rapid.SampledFrom([]int{0, 0, 0, 3, 15, 60}).Draw(r, "stop")) * time.Second,
				trigger: rapid.IntRange(0, 3).Draw(r, "trigger") == 0,
			})
		}
		workers, batch := rapid.IntRange(1, 3).Draw(r, "workers"), rapid.SampledFrom([]int{0, 1, 3}).Draw(r, "batch")
		order := rapid.Permutation(steps).Draw(r, "order") // ids are not in commit order
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.end, w.offered = 0, 0
			m := &reader{world: w}
			b := startWith(t, w, Config{Workers: workers, Batch: batch})
			stops := make(chan time.Duration, len(order))
			go func() {
				for stop := range stops {
					time.Sleep(stop + 2*time.Millisecond)
					m.offer()
				}
			}()
			for _, s := range order {
				w.mu.Lock()
				m.log = append(m.log, s.commit)
				w.end = uint64(len(m.log))
				w.mu.Unlock()
				time.AfterFunc(s.commit.late, func() { w.insert(&row{id: s.commit.row, topic: "orders"}) })
				stops <- s.stop
				if s.trigger {
					b.Trigger()
				}
				time.Sleep(s.pause)
			}
			close(stops)
			time.Sleep(time.Hour)
			got := b.got()
			slices.Sort(got)
			for i, id := range got {
				if i+1 != id {
					t.Fatalf("published %v of %d rows", got, len(order))
				}
			}
			if len(got) != len(order) {
				t.Fatalf("published %d of %d rows", len(got), len(order))
			}
		})
	})
}
