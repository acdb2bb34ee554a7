package ack

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// journalLoop commits queued rows: at once after a pause, then when few rows have waited for CommitWithin since the previous
// commit, or many for CommitEvery, and every second for a checkpoint that other transactions moved. A commit is a sync of the
// disk, whatever its size, so a few rows wait for each other. It returns nil when ctx ends, and the first failed commit.
func (a *Acker) journalLoop(ctx context.Context) error {
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.sent.signal:
		case <-tick.C:
		}
		if !outbox.Wait(ctx, a.cfg.CommitWithin-time.Since(last), a.sent.many) || !outbox.Wait(ctx, a.cfg.CommitEvery-time.Since(last), nil) {
			return nil
		}
		lower(tick.C) // this commit also serves a tick that came meanwhile
		if err := a.commit(); err != nil {
			return err
		}
		last = time.Now()
	}
}

// commit journals the waiting sent rows with the checkpoint that they allow, removes the entries that the table has, and then
// queues the sent rows for the table. Only one goroutine calls it at a time.
func (a *Acker) commit() error {
	if err := a.left.broken.Load(); err != nil {
		return *err
	}
	passed := a.progress.Passed() // by the checkpoint of the previous commit
	sent := a.sent.take()
	written := a.written.take()
	for i := range passed {
		written = append(written, passed[i].Identity)
	}
	if len(sent) > 0 {
		// Before Checkpoint, so that the checkpoint covers them, and right before Commit, so that no other checkpoint does.
		a.progress.Settled(sent)
	}
	checkpoint, generation := a.checkpoints.next()
	if len(sent) == 0 && len(written) == 0 && checkpoint == nil {
		arrays.giveBack(sent)
		a.written.reuse(written)
		return nil
	}
	start := time.Now()
	if err := a.journal.Commit(sent, written, checkpoint, generation); err != nil {
		return fmt.Errorf("journal %d sent rows: %w; the process has to stop, because rows that the broker has accepted can no "+
			"longer be recorded: check the state directory and its disk, then start again", len(sent), err)
	}
	a.metrics.commitSeconds.Observe(time.Since(start).Seconds())
	if sent := a.withStatus(sent); len(sent) > 0 {
		a.queues.add(a.queues.leave(a.journal.Newest(), sent, a.progress.Leave))
	}
	arrays.giveBack(sent)
	a.written.reuse(written)
	if len(passed) > 0 {
		a.progress.Written(passed)
	}
	return nil
}

// checkpoints are the positions of the commits. The journal's goroutine owns them.
type checkpoints struct {
	progress Progress
	large    bool      // the GTID set of the last one was large
	saved    time.Time // the last one
	all      bool      // no commit omits its position: the process stops
}

// next returns the position of the next commit; nil does not move it. A position with a large GTID set costs as much as the
// rows of many commits, so most commits omit it: rows after an older one are in the journal or SENT at a start.
func (c *checkpoints) next() (*outbox.Position, uint64) {
	if c.large && !c.all && time.Since(c.saved) < largeEvery {
		return nil, 0
	}
	at, generation, moved := c.progress.Checkpoint()
	if !moved {
		return nil, 0
	}
	c.large, c.saved = len(at.GTIDs) > largeSet, time.Now()
	return &at, generation
}

// withStatus drops rows of tables without a status: only the journal records that they were sent.
func (a *Acker) withStatus(sent []outbox.Completion) []outbox.Completion {
	rest := slices.DeleteFunc(sent, func(c outbox.Completion) bool {
		if c.LogOnly {
			a.count(&c)
		}
		return c.LogOnly
	})
	a.pending.Add(int64(len(rest) - len(sent)))
	return rest
}

// writtenRows are SENT in their tables and still in the journal.
type writtenRows struct {
	mu    sync.Mutex
	rows  []outbox.Identity
	spare []outbox.Identity // empty: the previous list's array
}

func (w *writtenRows) take() []outbox.Identity {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.rows
	w.rows, w.spare = w.spare, nil
	return list
}

// add records the sent rows of a batch.
func (w *writtenRows) add(batch []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range batch {
		if c := &batch[i]; c.Action == outbox.ActionMarkSent {
			w.rows = append(w.rows, c.Identity)
		}
	}
}

// reuse keeps the array of a list that the journal has removed.
func (w *writtenRows) reuse(list []outbox.Identity) {
	clear(list)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = list[:0]
}
