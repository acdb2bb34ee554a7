package ack

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// writeFrom is the loop of a queue's writer: it ends with the queue, or when work is cut.
func (a *Acker) writeFrom(work context.Context, q *writeQueue) {
	for {
		a.left.fetch(work, q.table)
		wait, ok := a.queues.due(q, work.Err())
		switch {
		case !ok:
			return
		case wait > 0:
			a.await(work, q, wait)
		default:
			a.writeWhenFree(work, q)
		}
	}
}

// writeWhenFree writes a batch when the semaphore allows it. It takes the batch only then, so that the batch grows while other tables
// are written. A free unit of the semaphore is used for a second statement. An attempt that lasts continues, and releases its
// units for other tables.
func (a *Acker) writeWhenFree(work context.Context, q *writeQueue) {
	statements := 1
	if a.queues.takesSlots(q) {
		a.pauseAll(work)
		if a.slots.Acquire(work, 1) != nil {
			return // work is cut
		}
		if a.queues.wide(q) && a.slots.TryAcquire(1) {
			statements = 2
		}
		timer := time.AfterFunc(lasting, func() { a.slots.Release(int64(statements)) })
		defer func() {
			if timer.Stop() {
				a.slots.Release(int64(statements))
			}
		}()
	}
	a.attempt(work, q, a.queues.take(q, statements))
}

// lastPause is when all writers paused last.
type lastPause struct {
	mu   sync.Mutex
	last time.Time
}

// due reports whether the caller is to make the pause.
func (p *lastPause) due(every time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < every {
		return false
	}
	p.last = time.Now()
	return true
}

// pauseAll keeps all writers from writing for Pause when that is due. MariaDB leaves our own writes out of the stream, and sends a heartbeat only when nothing was committed
// for its period: writers that always write would make the stream look dead, and its position would not move.
func (a *Acker) pauseAll(work context.Context) {
	if a.cfg.Pause <= 0 || a.queues.leftRows() == 0 || !a.paused.due(a.cfg.PauseEvery) || a.slots.Acquire(work, writing) != nil {
		return
	}
	defer a.slots.Release(writing)
	outbox.Wait(work, a.cfg.Pause, nil)
}

// await pauses a writer until its queue must be checked again.
func (a *Acker) await(work context.Context, q *writeQueue, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var draining <-chan struct{}
	if !a.queues.drains() {
		draining = a.queues.draining
	}
	select {
	case <-work.Done():
	case <-draining:
	case <-q.wake:
	case <-timer.C:
	}
}

// attempt makes one attempt at a batch; rows that fail return to the head of its queue. Rows that are locked or refused go to
// separate queues, so that they delay no other row.
func (a *Acker) attempt(work context.Context, q *writeQueue, batch []outbox.Completion) {
	defer clear(batch)
	slices.SortFunc(batch, byPrimaryKey)
	began, size := time.Now(), len(batch)
	got, failed, err := a.applySideBySide(work, batch)
	a.queues.took(q, size, time.Since(began))
	if q.kind == refused {
		a.pending.Add(int64(len(got.locked))) // they are counted again, refused rows are not
	} else {
		a.pending.Add(-int64(got.final))
	}
	if len(got.locked) > 0 && q.kind != locked {
		a.postpone(q.table, got.locked)
	}
	a.reportUnsent(got.unsent)
	if err != nil {
		if q.kind != refused {
			a.refusedRows(q, got.refused, false)
		}
		a.metrics.writeErrors.Inc()
		first := a.queues.failed(q, failed, err, a.cfg.pause)
		a.progress.Written(nil)         // what waits for room asks whether the table is stuck
		if first && work.Err() == nil { // our own cut proves nothing about the database
			a.log.Warn("cannot write statuses to the table, retrying; published messages stay in the journal and are not "+
				"published again", zap.String("table", q.table), zap.Error(err))
		}
		return
	}
	a.refusedRows(q, got.refused, got.final > 0)
	if len(got.locked) > 0 && q.kind == locked {
		a.queues.failed(q, got.locked, nil, a.cfg.pause)
		a.progress.Written(nil) // as above
		return
	}
	if q.kind == refused {
		if a.queues.count(refused) == 0 {
			a.log.Info("the tables take the statuses that they refused: every published message is shown as SENT")
		}
		return
	}
	switch last := a.queues.worked(q); {
	case last && q.kind == locked:
		a.log.Info("the locks of outbox rows are free again: the statuses that waited are written")
	case last:
		a.log.Info("statuses are written to every table again")
	}
}

// answer is the result of one batch.
type answer struct {
	final   int // rows that journal and registry can release
	locked  []outbox.Completion
	refused []outbox.WriteError // sent rows
	unsent  []outbox.WriteError // refused statuses of rows that were not sent; they are final for this package
}

func (a *answer) join(b answer) {
	a.final += b.final
	a.locked, a.refused, a.unsent = append(a.locked, b.locked...), append(a.refused, b.refused...), append(a.unsent, b.unsent...)
}

// applySideBySide makes one attempt: a batch too large for one statement is split into two by keys, on two connections. They
// share no row and no range of the table, and the server can group their commits in the log. With an error it returns the rows
// whose result is unknown.
func (a *Acker) applySideBySide(work context.Context, batch []outbox.Completion) (got answer, failed []outbox.Completion, err error) {
	if len(batch) <= writeBatch {
		if got, err = a.apply(work, batch); err != nil {
			failed = batch
		}
		return got, failed, err
	}
	var upper struct {
		sync.WaitGroup
		answer
		err error
	}
	low, high := batch[:len(batch)/2:len(batch)/2], batch[len(batch)/2:]
	upper.Go(func() { upper.answer, upper.err = a.apply(work, high) })
	got, err = a.apply(work, low)
	upper.Wait()
	switch {
	case err != nil && upper.err != nil:
		return answer{}, batch, err
	case err != nil:
		return upper.answer, low, err
	case upper.err != nil:
		return got, high, upper.err
	}
	got.join(upper.answer)
	return got, nil, nil
}

// pause is the wait after n earlier consecutive failures.
func (c *Config) pause(n int) time.Duration { return c.Retry.Delay(n, c.Random()) }

// postpone queues rows that another session has locked for later.
func (a *Acker) postpone(table string, rows []outbox.Completion) {
	if a.queues.postpone(table, rows, a.cfg.pause) {
		a.log.Warn("another session holds the locks of outbox rows: their statuses wait for it, those of other rows do not; "+
			"find the transaction that does not end", append(rowFields(rows[0]), zap.Int("rows", len(rows)))...)
	}
}

// byPrimaryKey orders rows as the server locks them, so that two statements do not wait for each other in a circle (failure D07).
// Of keys in digits the shorter one is smaller, and binary keys have one length. Text keys have the order of their collation,
// which only the server has: it sorts the keys of a statement by it before it locks the first.
func byPrimaryKey(x, y outbox.Completion) int {
	return cmp.Or(cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID))
}

// apply makes one attempt for one batch. A row that the table refuses, or that another session has locked, does not affect the
// other rows. When the table has answered, journal and registry release every row except locked ones and sent ones that the table
// refuses.
func (a *Acker) apply(work context.Context, batch []outbox.Completion) (got answer, err error) {
	ctx, cancel := context.WithTimeout(work, applyTimeout)
	defer cancel()
	list, err := a.tables.Apply(ctx, batch)
	if err != nil {
		return got, err
	}
	a.metrics.batchSize.Observe(float64(len(batch)))
	if len(list) == 0 {
		a.conclude(batch, nil)
		return answer{final: len(batch)}, nil
	}
	unwritten, kept, fenced := make(map[outbox.Identity]bool), make(map[outbox.Identity]bool), 0
	for _, u := range list {
		switch {
		case u.Retryable:
			kept[u.Identity] = true
			got.locked = append(got.locked, u.Completion)
		case u.Fenced:
			unwritten[u.Identity] = true
			fenced++
		case u.Action == outbox.ActionMarkSent:
			kept[u.Identity] = true // the broker has it: it stays in journal and registry, so that it is never sent again
			got.refused = append(got.refused, u)
		default:
			unwritten[u.Identity] = true
			got.unsent = append(got.unsent, u)
		}
	}
	if fenced > 0 {
		a.log.Info("the lease is not valid: attempts and failures are not written, the relay that holds the lease decides about these rows",
			zap.String("table", batch[0].Table), zap.Int("rows", fenced))
	}
	final := slices.DeleteFunc(batch, func(s outbox.Completion) bool { return kept[s.Identity] })
	got.final = len(final)
	a.conclude(final, unwritten)
	return got, nil
}

// conclude releases rows from journal and registry that the table has, or whose status it will not get: unwritten ones were not
// sent, and the sweep finds them.
func (a *Acker) conclude(batch []outbox.Completion, unwritten map[outbox.Identity]bool) {
	var settled, noted []outbox.Completion
	for i := range batch {
		s := &batch[i]
		if s.Action != outbox.ActionMarkSent {
			settled = append(settled, *s)
		}
		if !unwritten[s.Identity] {
			a.count(s)
			if s.Action != outbox.ActionMarkSent && s.Action != outbox.ActionRelease || s.Path != outbox.PathBinlog || s.Sends > 1 {
				noted = append(noted, *s)
			}
		}
	}
	if len(noted) > 0 {
		a.cfg.Noted(noted)
	}
	// The journal first: once the registry releases a row, it may be published again, and the journal's entry of that second
	// publish must not be removed.
	a.written.add(batch)
	if len(settled) > 0 {
		a.progress.Settled(settled)
	}
	if len(batch) > 0 {
		a.progress.Written(batch)
	}
}

// count records a completion that the table has.
func (a *Acker) count(s *outbox.Completion) {
	switch s.Action {
	case outbox.ActionRetry:
		a.metrics.retries.Inc()
		a.problems.retried()
	case outbox.ActionFail:
		if s.Reported {
			a.metrics.retries.Inc()
			a.problems.retried()
			return
		}
		a.metrics.failed(s.Class).Inc()
		a.problems.failed(*s)
		a.cfg.Failed(*s)
		a.log.Warn("message failed for good; fix the cause and retry or discard it", append(rowFields(*s),
			zap.Stringer("class", s.Class), zap.String("reason", s.Reason))...)
	case outbox.ActionMarkSent:
		if !s.Since.IsZero() { // entries that the journal had at the start have none
			a.metrics.settleSeconds.Observe(max(0, time.Since(s.Since).Seconds()))
		}
	}
}

func rowFields(s outbox.Completion) []zap.Field {
	return []zap.Field{zap.String("table", s.Table), zap.String("id", s.ID), zap.String("message_id", s.MessageID)}
}
