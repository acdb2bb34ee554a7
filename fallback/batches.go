package fallback

import (
	"context"
	"slices"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// alone reports whether the batches of a table run one after the other, each from the list to the sink. With a rate a batch lasts
// as long as the rate demands. Where keys keep their order, rows of a later batch are left to the next sweep while an earlier row
// of their key is not final, so overlapping batches would make a backlog slower.
func (c *Config) alone(table string) bool { return c.Rate > 0 || slices.Contains(c.Ordered, table) }

// batches runs successive batches of one table concurrently, one per worker, and the list of the next page during the last batch
// of a page. Listing, waiting for the log and reserving are sequential, and so is sending to the sink: a sweep publishes in the
// order of its list. With one worker a batch is sent before the next one is claimed: an earlier claim made no backlog faster on a
// busy server, and rows that are committed meanwhile later.
type batches struct {
	alone bool
	slots chan struct{} // one token for each running batch
	last  chan struct{} // closed when the previous batch was sent
	group sync.WaitGroup

	mu  sync.Mutex
	err error // the first
}

func newBatches(workers int, alone bool) *batches {
	b := &batches{alone: alone, slots: make(chan struct{}, max(1, workers)), last: make(chan struct{})}
	close(b.last)
	return b
}

// room waits until a batch may start. The error is that of any batch so far: the list ends there.
func (b *batches) room() error {
	b.slots <- struct{}{}
	<-b.slots // a free slot stays free: only the list takes slots
	return b.failed()
}

// take runs the work on one batch, after room. It passes a channel that is closed when the previous batch was sent. The error is
// as with room.
func (b *batches) take(work func(previous <-chan struct{}) error) error {
	previous, done := b.last, make(chan struct{})
	b.last = done
	b.slots <- struct{}{}
	b.group.Go(func() {
		defer func() { <-b.slots }()
		defer close(done)
		if err := work(previous); err != nil {
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

// wait returns when no batch is running.
func (b *batches) wait() error {
	b.group.Wait()
	return b.failed()
}

// awaitPrevious waits until the previous batches were sent, while ctx lasts; nil: there are none.
func awaitPrevious(ctx context.Context, previous <-chan struct{}) error {
	if previous == nil {
		return nil
	}
	select {
	case <-previous:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count adds a published row to the sweep's counts, and returns its result for the metrics.
func (l *list) count(c outbox.Candidate, due bool) (result string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published++
	switch {
	case c.Status == outbox.Sending:
		l.claimed--
		return rowReclaimed
	case c.RetryCount > 0:
		return rowRetry
	}
	l.fresh++
	if !due {
		l.undue++
	}
	return rowNew
}

// found counts the claimed rows of a page.
func (l *list) found(page []outbox.Candidate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range page {
		if page[i].Status == outbox.Sending {
			l.claimed++
		}
	}
}

// sum is the number of rows published so far.
func (r *run) sum() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.published
}
