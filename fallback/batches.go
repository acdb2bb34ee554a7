package fallback

import (
	"context"
	"slices"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// alone reports whether a table's batches come one after the other, each from the list to the sink. With a rate a batch lasts as long as
// its rows are worth. Where keys keep their order, rows of a later batch that are reserved while an earlier one of their key is not
// final are left to the next sweep, so that overlapping batches would make a backlog slower.
func (c *Config) alone(table string) bool { return c.Rate > 0 || slices.Contains(c.Ordered, table) }

// batches lets the work on successive batches of one table overlap, as many as there are workers, and the list of the next page overlap with the
// last batch of a page. Listing, waiting for the log and reserving are one after the other, and so is handing over to the sink: what a
// sweep publishes keeps the order of its list. With one worker a batch is with the sink before the next is claimed: to claim it earlier made no
// backlog faster on a busy server, and rows that are committed meanwhile later.
type batches struct {
	alone bool
	slots chan struct{} // one token for each batch under way
	last  chan struct{} // closed when the batch before was handed over
	group sync.WaitGroup

	mu  sync.Mutex
	err error // the first
}

func newBatches(workers int, alone bool) *batches {
	b := &batches{alone: alone, slots: make(chan struct{}, max(1, workers)), last: make(chan struct{})}
	close(b.last)
	return b
}

// room waits until a batch may be taken. The error is that of any batch so far: the list ends there.
func (b *batches) room() error {
	b.slots <- struct{}{}
	<-b.slots // what is free stays free: only the list takes
	return b.failed()
}

// take runs the work on one batch, after room, with what is closed when the batch before was handed over. The error is as with room.
func (b *batches) take(work func(turn <-chan struct{}) error) error {
	turn, done := b.last, make(chan struct{})
	b.last = done
	b.slots <- struct{}{}
	b.group.Go(func() {
		defer func() { <-b.slots }()
		defer close(done)
		if err := work(turn); err != nil {
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

// awaitTurn waits until the batches before were handed over, as long as ctx lasts; nil: there are none.
func awaitTurn(ctx context.Context, turn <-chan struct{}) error {
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
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
