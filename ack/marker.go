package ack

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// markLoop writes verdicts to the tables until ctx ends; work bounds the statements.
func (a *Acker) markLoop(ctx, work context.Context) {
	for a.markNext(ctx, work, a.cfg.MarkEvery) {
	}
}

// markNext waits for a batch and makes one attempt at it; what fails goes back to the head of its lane. It reports false
// when ctx ended first.
func (a *Acker) markNext(ctx, work context.Context, patience time.Duration) bool {
	table, batch, ok := a.marks.next(ctx, patience)
	if !ok {
		return false
	}
	slices.SortFunc(batch, byPrimaryKey)
	if err := a.apply(work, batch); err != nil {
		a.metrics.markErrors.Inc()
		first := a.marks.failed(table, batch, func(n int) time.Duration { return a.cfg.Retry.Delay(n, a.cfg.Random()) })
		if first && work.Err() == nil { // our own cut says nothing about the database
			a.log.Warn("cannot write statuses to the table, retrying; published messages stay in the journal and are not "+
				"published again", zap.String("table", table), zap.Error(err))
		}
		return true
	}
	if a.marks.worked(table) {
		a.log.Info("statuses are written to every table again")
	}
	return true
}

// byPrimaryKey orders rows as the server locks them, so that two writers of a status do not wait for each other in a
// circle (failure D07). Integer keys are digits: the shorter one is the smaller.
func byPrimaryKey(x, y outbox.Settlement) int {
	return cmp.Or(cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID))
}

// apply makes one attempt for one batch and, when the table answered, draws the consequences for journal and registry.
func (a *Acker) apply(work context.Context, batch []outbox.Settlement) error {
	ctx, cancel := context.WithTimeout(work, applyTimeout)
	defer cancel()
	refused, err := a.marker.Apply(ctx, batch)
	if err != nil {
		return err
	}
	a.metrics.batchSize.Observe(float64(len(batch)))
	unwritable := make(map[outbox.Identity]bool, len(refused))
	for _, u := range refused {
		unwritable[u.Identity] = true
		a.reportUnwritable(u)
	}
	var journalled []outbox.Identity
	settled, final := make([]outbox.Settlement, 0, len(batch)), make([]outbox.Settlement, 0, len(batch))
	for _, s := range batch {
		if s.Verdict == outbox.VerdictSent {
			if unwritable[s.Identity] {
				continue // the broker has it: it stays in the journal and in the registry, so that it is never sent again
			}
			journalled = append(journalled, s.Identity)
		} else {
			settled = append(settled, s)
		}
		final = append(final, s)
		if !unwritable[s.Identity] {
			a.count(s)
		}
	}
	// The journal must hear of it before the registry lets the row go: afterwards it may be published anew, and the entry
	// of that second publish must not be the one removed.
	a.addConfirmed(journalled)
	if len(settled) > 0 {
		a.progress.Settled(settled)
	}
	if len(final) > 0 {
		a.progress.Confirmed(final)
	}
	a.pending.Add(-int64(len(batch)))
	return nil
}

// count records a verdict that the table has now.
func (a *Acker) count(s outbox.Settlement) {
	switch s.Verdict {
	case outbox.VerdictRetry:
		a.metrics.retries.Inc()
	case outbox.VerdictFailed:
		a.metrics.failed(s.Class).Inc()
		a.log.Warn("message failed for good; mend the cause and retry or discard it", append(rowFields(s),
			zap.Stringer("class", s.Class), zap.String("reason", s.Reason))...)
	case outbox.VerdictSent:
		if m := s.Message; m != nil {
			from := m.CommittedAt
			if from.IsZero() {
				from = m.ReceivedAt
			}
			a.metrics.settleSeconds.Observe(max(0, time.Since(from).Seconds()))
		}
	}
}

func (a *Acker) reportUnwritable(u outbox.Unwritable) {
	a.metrics.unwritable.WithLabelValues(u.Verdict.String()).Inc()
	fields := append(rowFields(u.Settlement), zap.Stringer("verdict", u.Verdict), zap.String("reason", u.Reason))
	if u.Verdict == outbox.VerdictSent {
		a.metrics.unwritableRows.Inc()
		a.log.Error("the table refuses to show a published message as sent; it stays in the journal and is not published "+
			"again: mend the table or the row, the status is written at the next start", fields...)
		return
	}
	a.log.Error("the table refuses the status of a message that was not published; the row stays as it is and is tried "+
		"again by the sweep: mend the table or the row", fields...)
}

func rowFields(s outbox.Settlement) []zap.Field {
	return []zap.Field{zap.String("table", s.Table), zap.String("id", s.ID), zap.String("message_id", s.MessageID)}
}
