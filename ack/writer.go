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

// writeFrom is the life of a queue's writer: it ends with the queue, or when work is cut.
func (a *Acker) writeFrom(work context.Context, q *writeQueue) {
	for {
		wait, ok := a.queues.due(q, a.cfg.WriteEvery, work.Err())
		switch {
		case !ok:
			return
		case wait > 0:
			a.await(work, q, wait)
		default:
			a.inTurn(work, q)
		}
	}
}

// inTurn writes a batch when it is the queue's turn. The batch is taken then and not before, so that it grows while other tables are
// written. A turn that nobody waits for is taken for a second statement beside the first. An attempt that lasts goes on, and its turns pass
// to other tables.
func (a *Acker) inTurn(work context.Context, q *writeQueue) {
	statements := 1
	if a.queues.takesTurns(q) {
		if a.turns.Acquire(work, 1) != nil {
			return // work is cut
		}
		if a.queues.wide(q) && a.turns.TryAcquire(1) {
			statements = 2
		}
		turn := time.AfterFunc(lasting, func() { a.turns.Release(int64(statements)) })
		defer func() {
			if turn.Stop() {
				a.turns.Release(int64(statements))
			}
		}()
	}
	a.attempt(work, q, a.queues.take(q, statements))
}

// await pauses a writer until its queue has to be looked at again.
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
	case <-q.full:
	case <-timer.C:
	}
}

// attempt makes one attempt at a batch; what fails goes back to the head of its queue.
func (a *Acker) attempt(work context.Context, q *writeQueue, batch []outbox.Completion) {
	defer clear(batch)
	slices.SortFunc(batch, byPrimaryKey)
	began := time.Now()
	locked, failed, err := a.applySideBySide(work, batch)
	a.queues.took(q, len(batch), time.Since(began))
	if len(locked) > 0 && !q.locked {
		a.postpone(q.table, locked)
	}
	switch {
	case err != nil:
		a.metrics.writeErrors.Inc()
		first := a.queues.failed(q, failed, err.Error(), a.pause)
		if first && work.Err() == nil { // our own cut says nothing about the database
			a.log.Warn("cannot write statuses to the table, retrying; published messages stay in the journal and are not "+
				"published again", zap.String("table", q.table), zap.Error(err))
		}
		return
	case len(locked) > 0 && q.locked:
		a.queues.failed(q, locked, "", a.pause)
		return
	}
	switch last := a.queues.worked(q); {
	case last && q.locked:
		a.log.Info("the locks of outbox rows are free again: the statuses that waited are written")
	case last:
		a.log.Info("statuses are written to every table again")
	}
}

// applySideBySide makes one attempt: what is more than one statement takes goes as two, each with half of the keys, on two connections.
// They share no row and no stretch of the table, and one commit of the log is enough for both where the server groups them. It returns
// the rows that another session has locked, and with an error those of which nothing is known.
func (a *Acker) applySideBySide(work context.Context, batch []outbox.Completion) (locked, failed []outbox.Completion, err error) {
	if len(batch) <= writeBatch {
		if locked, err = a.apply(work, batch); err != nil {
			failed = batch
		}
		return locked, failed, err
	}
	var upper struct {
		sync.WaitGroup
		locked []outbox.Completion
		err    error
	}
	low, high := batch[:len(batch)/2:len(batch)/2], batch[len(batch)/2:]
	upper.Go(func() { upper.locked, upper.err = a.apply(work, high) })
	locked, err = a.apply(work, low)
	upper.Wait()
	switch {
	case err != nil && upper.err != nil:
		return nil, batch, err
	case err != nil:
		return upper.locked, low, err
	case upper.err != nil:
		return locked, high, upper.err
	}
	return append(locked, upper.locked...), nil, nil
}

// pause is the wait after n failures in a row before the present one.
func (a *Acker) pause(n int) time.Duration { return a.cfg.Retry.Delay(n, a.cfg.Random()) }

// postpone leaves rows that another session has locked for later.
func (a *Acker) postpone(table string, rows []outbox.Completion) {
	if a.queues.postpone(table, rows, a.pause) {
		a.log.Warn("another session holds the locks of outbox rows: their statuses wait for it, those of other rows do not; "+
			"find the transaction that does not end", append(rowFields(rows[0]), zap.Int("rows", len(rows)))...)
	}
}

// byPrimaryKey orders rows as the server locks them, so that two statements do not wait for each other in a circle (failure
// D07). Of keys written in digits the shorter one is the smaller, and binary ones have one length. Text keys have the order of their
// collation, which is the server's to know: it sorts the keys of a statement by it before it locks the first.
func byPrimaryKey(x, y outbox.Completion) int {
	return cmp.Or(cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID))
}

// apply makes one attempt for one batch. When the table has answered, journal and registry hear of every row but those that
// another session has locked, which it returns.
func (a *Acker) apply(work context.Context, batch []outbox.Completion) (locked []outbox.Completion, err error) {
	ctx, cancel := context.WithTimeout(work, applyTimeout)
	defer cancel()
	refused, err := a.tables.Apply(ctx, batch)
	if err != nil {
		return nil, err
	}
	a.metrics.batchSize.Observe(float64(len(batch)))
	if len(refused) == 0 {
		a.conclude(batch, nil)
		return nil, nil
	}
	unwritable, waiting := make(map[outbox.Identity]bool, len(refused)), make(map[outbox.Identity]bool)
	for _, u := range refused {
		if u.Retryable {
			waiting[u.Identity] = true
			locked = append(locked, u.Completion)
			continue
		}
		unwritable[u.Identity] = true
		a.reportUnwritable(u)
	}
	a.conclude(slices.DeleteFunc(batch, func(s outbox.Completion) bool { return waiting[s.Identity] }), unwritable)
	return locked, nil
}

// conclude tells journal and registry of completions that the table has, or never takes.
func (a *Acker) conclude(batch []outbox.Completion, unwritable map[outbox.Identity]bool) {
	var settled, final []outbox.Completion
	if len(unwritable) == 0 { // as nearly always: nothing is copied
		final = batch
	}
	for i := range batch {
		s := &batch[i]
		bad := len(unwritable) > 0 && unwritable[s.Identity]
		switch isSent := s.Action == outbox.ActionMarkSent; {
		case isSent && bad:
			continue // the broker has it: it stays in journal and registry, so that it is never sent again
		case !isSent:
			settled = append(settled, *s)
		}
		if len(unwritable) > 0 {
			final = append(final, *s)
		}
		if !bad {
			a.count(s)
		}
	}
	// The journal must hear of it before the registry releases the row: once released, it may be published again, and the
	// entry of that second publish must not be removed.
	a.addWritten(batch, unwritable)
	if len(settled) > 0 {
		a.progress.Settled(settled)
	}
	if len(final) > 0 {
		a.progress.Written(final)
	}
	a.pending.Add(-int64(len(batch)))
}

// count records a completion that the table has now.
func (a *Acker) count(s *outbox.Completion) {
	switch s.Action {
	case outbox.ActionRetry:
		a.metrics.retries.Inc()
	case outbox.ActionFail:
		if s.Reported {
			a.metrics.retries.Inc()
			return
		}
		a.metrics.failed(s.Class).Inc()
		a.problems.failed(*s)
		a.cfg.Failed(*s)
		a.log.Warn("message failed for good; fix the cause and retry or discard it", append(rowFields(*s),
			zap.Stringer("class", s.Class), zap.String("reason", s.Reason))...)
	case outbox.ActionMarkSent:
		if !s.Since.IsZero() { // what the journal held at the start has none
			a.metrics.settleSeconds.Observe(max(0, time.Since(s.Since).Seconds()))
		}
	}
}

func (a *Acker) reportUnwritable(u outbox.WriteError) {
	a.metrics.unwritable.WithLabelValues(u.Action.String()).Inc()
	fields := append(rowFields(u.Completion), zap.Stringer("action", u.Action), zap.String("reason", u.Reason))
	if u.Action == outbox.ActionMarkSent {
		a.metrics.unwritableRows.Inc()
		a.problems.unwritable(u)
		a.log.Error("the table refuses to show a published message as sent; it stays in the journal and is not published "+
			"again: fix the table or the row, the status is written at the next start", fields...)
		return
	}
	a.log.Error("the table refuses the status of a message that was not published; the row stays as it is and is tried "+
		"again by the sweep: fix the table or the row", fields...)
}

func rowFields(s outbox.Completion) []zap.Field {
	return []zap.Field{zap.String("table", s.Table), zap.String("id", s.ID), zap.String("message_id", s.MessageID)}
}
