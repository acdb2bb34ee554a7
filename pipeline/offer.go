package pipeline

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// This file is the reader's side of the flow.

// chunk is how many rows of one transaction are taken over at once.
const chunk = 500

// Connected opens a stream that starts at from. Rows up to end, the server's position at connect, form the recovery window:
// they are looked up by primary key before they are published.
func (p *Pipeline) Connected(ctx context.Context, from, end outbox.Position) error {
	if err := p.recovery.Lock(ctx); err != nil {
		return err
	}
	defer p.recovery.Unlock()
	if err := p.recovery.Check(ctx); err != nil {
		return err
	}
	p.recovery.Open(end)
	p.tracker.SetOffered(from)
	p.tracker.Barrier(end)
	return nil
}

// Idle reports that the server has nothing behind pos: everything before was offered.
func (p *Pipeline) Idle(pos outbox.Position) { p.tracker.Idle(pos) }

// Offer takes one transaction over, in log order. It blocks while there is no room or the breaker is open: that is the
// back-pressure on the reader. Transactions without rows pass at once. After an error, which is that of ctx, the same
// transaction may be offered again.
func (p *Pipeline) Offer(ctx context.Context, txn *outbox.Txn) error {
	if err := p.awaitKept(ctx, txn); err != nil {
		return err
	}
	if err := p.recovery.Lock(ctx); err != nil {
		return err
	}
	defer p.recovery.Unlock()
	p.dispatch.Deferred(txn.Deferred)
	seq := p.tracker.Begin(txn)
	for rows := txn.Messages; len(rows) > 0; {
		n := min(len(rows), chunk)
		if rest, err := p.take(ctx, txn, seq, rows[:n]); err != nil {
			p.tracker.Withdraw(txn, seq, rest)
			return err
		}
		rows = rows[n:]
	}
	if txn.More {
		return nil
	}
	p.tracker.SetOffered(txn.End)
	if p.recovery.Passed(txn.End) {
		if err := p.recovery.Check(ctx); err != nil {
			p.tracker.Withdraw(txn, seq, nil)
			return err
		}
	}
	return nil
}

// take admits rows of one transaction and passes them to the sink, to recovery, or to the sweep. With an error, which is that of
// ctx, it returns the rows that were not passed. Callers hold recovery's lock.
func (p *Pipeline) take(ctx context.Context, txn *outbox.Txn, seq uint64, rows []*outbox.Message) (rest []*tracker.Entry, err error) {
	admitted := p.tracker.Admit(seq, rows, p.entries[:0])
	p.entries = admitted
	inWindow := p.recovery.Covers(txn.End) // after Admit, see there
	fit := admitted[:0]
	for _, e := range admitted {
		e.Delayed = delayed(e.Message, txn.CommittedAt)
		cause := unfit(e, inWindow)
		if cause == outbox.CauseNotDue && e.Message.Grace == 0 && brokerDelays(e.Message, txn.CommittedAt, p.longest) {
			e.Message.Later, cause = true, ""
		}
		if cause == "" {
			fit = append(fit, e)
			continue
		}
		due, grace := e.Message.DueAt, e.Message.Grace
		p.tracker.Drop(e, cause)
		switch cause {
		case outbox.CauseNotDue:
			// Half way, because the commit's time is rounded and the log may lag: that look reads what is left by the
			// database's clock.
			p.sweeps.DueIn(e.Row(), due.Sub(txn.CommittedAt)/2)
		case outbox.CauseGrace: // from now, which is later than the commit
			p.sweeps.DueIn(e.Row(), grace)
		}
	}
	if inWindow {
		looked, direct := split(fit)
		if err := p.recovery.Add(ctx, looked); err != nil {
			return direct, err
		}
		fit = direct
	} else if err := p.recovery.Check(ctx); err != nil { // what waits for its look-up goes first
		return fit, err
	}
	for len(fit) > 0 {
		n, err := p.dispatch.Publish(ctx, fit)
		if err != nil {
			return fit, err
		}
		fit = fit[n:]
	}
	return nil, nil
}

// split separates the rows whose tables can be asked about them from those that only the log has: what of these was sent is owned.
func split(rows []*tracker.Entry) (looked, direct []*tracker.Entry) {
	if !slices.ContainsFunc(rows, func(e *tracker.Entry) bool { return e.LogOnly }) {
		return rows, nil
	}
	for _, e := range rows {
		if e.LogOnly {
			direct = append(direct, e)
		} else {
			looked = append(looked, e)
		}
	}
	return looked, direct
}

// maxKept is how many rows that were sent may wait for older transactions; an entry has some 500 bytes.
const maxKept = 200_000

// awaitKept waits before a transaction with rows that are LogOnly while too many others, which were sent, wait for the checkpoint to pass
// them: a row before them is held. It never waits inside a transaction, whose own rows would wait for it.
func (p *Pipeline) awaitKept(ctx context.Context, txn *outbox.Txn) error {
	inside := p.inside
	p.inside = txn.More
	for !inside && p.tracker.Kept() >= maxKept && slices.ContainsFunc(txn.Messages, func(m *outbox.Message) bool { return m.LogOnly }) {
		changed := p.tracker.Changed()
		if p.tracker.Kept() < maxKept {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
	return nil
}

// delayMargin keeps what the broker is given clear of the longest delay that it takes.
const delayMargin = time.Minute

// brokerDelays reports whether a row that is due later is handed to the broker at once, which delivers it at its time. What the broker
// does not take is left to a timer, see dispatch.
func brokerDelays(m *outbox.Message, committed time.Time, longest time.Duration) bool {
	return longest > 0 && !committed.IsZero() && m.DueAt.Sub(committed) < longest-delayMargin
}

// delayed reports whether a row is due later by its producer's will.
func delayed(m *outbox.Message, committed time.Time) bool {
	return !m.DueAt.IsZero() && m.DueAt.Sub(committed) > outbox.DueSlack
}

// unfit says why the fast path does not publish a row; "" when it does. In the recovery window the due time is judged by the
// database, later.
func unfit(e *tracker.Entry, inWindow bool) outbox.Cause {
	switch {
	case e.Message.Status != outbox.Pending:
		return outbox.CauseStatus
	case !inWindow && e.Delayed:
		return outbox.CauseNotDue
	case e.Message.Grace > 0: // in the window too: its end may be before the grace's
		return outbox.CauseGrace
	}
	return ""
}
