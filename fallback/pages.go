package fallback

import (
	"context"
	"slices"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// workers is how many pages of a table are claimed at a time. With a rate it is one: a page then lasts as long as its rows are worth. Where
// keys keep their order it is one as well: rows of a later page that are reserved while an earlier one of their key is not final are left
// to the next sweep, so that overlapping pages would make a backlog slower.
func (c *Config) workers(table string) int {
	if c.Rate > 0 || c.Workers < 1 || slices.Contains(c.Ordered, table) {
		return 1
	}
	return c.Workers
}

// pages lets the claims of successive pages of one table overlap, because each is a wait for the database's disk. Selecting, waiting for
// the log and reserving stay one after the other, and so does handing over to the sink: what a sweep publishes keeps the order of its
// list.
type pages struct {
	slots chan struct{} // one token for each page under way
	last  chan struct{} // closed when the page before was handed over
	group sync.WaitGroup

	mu  sync.Mutex
	err error // the first
}

func newPages(workers int) *pages {
	p := &pages{slots: make(chan struct{}, workers), last: make(chan struct{})}
	close(p.last)
	return p
}

// take runs the work on one page; it waits for a free worker. The error is that of any page so far: the list ends there.
func (p *pages) take(work func(turn <-chan struct{}) error) error {
	turn, done := p.last, make(chan struct{})
	p.last = done
	p.slots <- struct{}{}
	p.group.Go(func() {
		defer func() { <-p.slots }()
		defer close(done)
		if err := work(turn); err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.err == nil {
				p.err = err
			}
		}
	})
	if cap(p.slots) == 1 {
		return p.wait()
	}
	return p.failed()
}

func (p *pages) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// wait returns when no page is under way.
func (p *pages) wait() error {
	p.group.Wait()
	return p.failed()
}

// count notes in the round what became of the rows of one page.
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

// awaitTurn waits until the pages before were handed over, as long as ctx lasts; with nil there are none.
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
