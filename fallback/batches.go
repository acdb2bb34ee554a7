package fallback

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// alone reports whether a table's batches come one after the other, each from the list to the sink. With a rate a batch lasts as long as
// its rows are worth. Where keys keep their order, rows of a later batch that are reserved while an earlier one of their key is not
// final are left to the next sweep, so that overlapping batches would make a backlog slower.
func (c *Config) alone(table string) bool { return c.Rate > 0 || slices.Contains(c.Ordered, table) }

// batches lets the work on successive batches of one table overlap, because most of it is a wait for the database: while one is claimed,
// rows are listed for the next and the one before is read back and published. Listing, waiting for the log and reserving are one after
// the other, and so is handing over to the sink: what a sweep publishes keeps the order of its list.
type batches struct {
	alone  bool
	slots  chan struct{} // one token for each batch under way
	claims chan struct{} // one token for each that is claimed now
	last   chan struct{} // closed when the batch before was handed over
	group  sync.WaitGroup
	busy   atomic.Bool // the last claim took longer than quick

	mu  sync.Mutex
	err error // the first
}

func newBatches(workers int, alone bool) *batches {
	workers = max(1, workers)
	b := &batches{alone: alone, slots: make(chan struct{}, workers+1), claims: make(chan struct{}, workers), last: make(chan struct{})}
	close(b.last)
	return b
}

// place is that of one batch among the others; the zero place is that of one without others.
type place struct {
	among  *batches
	began  time.Time       // of the claim
	before <-chan struct{} // closed when the batch before was handed over
}

// quick is what a claim takes where the database has room for the work of another batch. Where it has none nothing would be faster, and rows
// that are committed now would be later. More than one worker are for a database that is far away, so that any claim takes long.
const quick = 20 * time.Millisecond

// room waits until a batch may be claimed. The error is that of any batch so far: the list ends there.
func (b *batches) room() error {
	for _, tokens := range []chan struct{}{b.slots, b.claims} {
		tokens <- struct{}{}
		<-tokens // what is free stays free: only the list takes
	}
	if b.busy.Load() {
		b.group.Wait()
	}
	return b.failed()
}

// take runs the work on one batch, after room. The error is as with room.
func (b *batches) take(work func(place) error) error {
	at, done := place{b, time.Now(), b.last}, make(chan struct{})
	b.last = done
	b.slots <- struct{}{}
	b.claims <- struct{}{}
	b.group.Go(func() {
		defer func() { <-b.slots }()
		defer close(done)
		if err := work(at); err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.err == nil {
				b.err = err
			}
		}
	})
	if b.alone {
		return b.wait()
	}
	return b.failed()
}

func (b *batches) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// wait returns when no batch is under way.
func (b *batches) wait() error {
	b.group.Wait()
	return b.failed()
}

// claimed says that the batch is claimed, or will not be.
func (p place) claimed() {
	if b := p.among; b != nil {
		b.busy.Store(cap(b.claims) == 1 && time.Since(p.began) > quick)
		<-b.claims
	}
}

// turn waits until the batches before were handed over, as long as ctx lasts.
func (p place) turn(ctx context.Context) error {
	if p.before == nil {
		return nil
	}
	select {
	case <-p.before:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count notes in the round what became of the rows of one batch.
func (r *round) count(c outbox.Candidate, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published++
	if c.Status == outbox.Sending || c.RetryCount > 0 {
		return
	}
	r.fresh++
	if !due {
		r.undue++
	}
}

// sum is how many rows were published so far.
func (r *round) sum() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.published
}
