package pipeline

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// dueSlack is how far next_retry_time may lie behind the commit before a row counts as delayed: producers write "now" with
// rounding and clock skew (design 1, "Delayed messages").
const dueSlack = 2 * time.Second

// chunk is how many rows of one transaction are handed to the sink at once.
const chunk = 500

// Connected opens a stream that starts at from. Rows up to end, the server's position at connect, form the recovery window:
// they are checked by primary key before they are published.
func (p *Pipeline) Connected(ctx context.Context, from, end outbox.Position) error {
	if err := p.order.take(ctx); err != nil {
		return err
	}
	defer p.order.release()
	if err := p.checkWindow(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.windowEnd = end
	p.offered = from
	p.readerUp = true
	p.broadcast()
	return nil
}

// Disconnected tells that the stream ended: the sweep stops waiting for it.
func (p *Pipeline) Disconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readerUp = false
	p.broadcast()
}

// Offer takes one transaction over, in log order. It blocks while there is no room or the breaker is open: that is the
// back-pressure on the reader. Transactions without rows pass at once. After an error, which is that of ctx, the same
// transaction may be offered again.
func (p *Pipeline) Offer(ctx context.Context, txn *outbox.Txn) error {
	if err := p.order.take(ctx); err != nil {
		return err
	}
	defer p.order.release()
	p.countDeferred(txn.Deferred)
	p.mu.Lock()
	seq := p.mark.start(txn.End, txn.GTID, len(txn.Messages))
	p.mu.Unlock()
	err := p.takeAll(ctx, txn, seq)
	if err != nil {
		p.withdraw(txn, seq)
	}
	return err
}

// withdraw takes a transaction out of the mark that was not taken over whole. Rows that were go on, and answer for it when
// it comes again. Callers hold order.
func (p *Pipeline) withdraw(txn *outbox.Txn, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range txn.Messages {
		if e := p.registry[m.Identity]; e != nil && e.seq == seq {
			e.seq = withdrawn
		}
	}
	p.mark.drop(seq)
}

func (p *Pipeline) takeAll(ctx context.Context, txn *outbox.Txn, seq uint64) error {
	for rows := txn.Messages; len(rows) > 0; {
		n, err := p.take(ctx, txn, seq, rows[:min(len(rows), chunk)])
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	p.mu.Lock()
	p.offered = txn.End
	p.broadcast()
	complete := p.windowEnd.Compare(txn.End) <= 0
	p.mu.Unlock()
	if complete {
		return p.checkWindow(ctx)
	}
	return nil
}

// Idle tells that the server has nothing behind pos: everything before was offered.
func (p *Pipeline) Idle(pos outbox.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.offered.Compare(pos) < 0 {
		p.offered = pos
		p.broadcast()
	}
	p.mark.idle(pos)
}

// take reserves rows of one transaction, as many as there is room for, and hands them on: to the sink, to the catch-up
// check, or to the sweep. Rows that somebody owns already are dropped: their owner answers for them. It returns how many it
// took. Callers hold order.
func (p *Pipeline) take(ctx context.Context, txn *outbox.Txn, seq uint64, rows []*outbox.Message) (int, error) {
	inWindow, err := p.enter(ctx, txn.End)
	if err != nil {
		return 0, err
	}
	if !inWindow {
		rows = rows[:min(len(rows), max(1, p.cfg.MaxInFlight-p.inFlight-len(p.heldBack)))]
	}
	entries := make([]entry, len(rows))
	ready := make([]*outbox.Message, 0, len(rows))
	now := time.Now()
	for i, m := range rows {
		if i > 0 && !inWindow && !p.room() {
			rows = rows[:i]
			break
		}
		e := &entries[i]
		e.id, e.message, e.seq, e.size = m.Identity, m, seq, m.Size()
		if !p.registry.reserve(m.Identity, e) {
			p.leaveToOwner(e)
			continue
		}
		if cause := p.unfit(m, txn.CommittedAt, inWindow); cause != "" {
			p.deferRow(e, cause)
			if cause == outbox.CauseNotDue {
				// Half way, because the commit's time is rounded and the log may lag: that sweep reads the due time by the
				// database's clock and plans for it.
				p.sweepIn(m.DueAt.Sub(txn.CommittedAt) / 2)
			}
			continue
		}
		if inWindow {
			p.waiting = append(p.waiting, e)
			p.waitingB += e.size
			continue
		}
		p.launch(e, now)
		ready = append(ready, m)
	}
	p.mu.Unlock()
	p.send(ready)
	if len(p.waiting) >= windowPage || p.waitingB >= p.cfg.MaxInFlightBytes {
		return len(rows), p.checkWindow(ctx)
	}
	return len(rows), nil
}

// leaveToOwner drops a row that somebody owns. Its transaction need not wait for the owner, unless that is the fast path
// itself with a transaction that a move of the position has forgotten or that was withdrawn: then the owner answers for this
// one. Callers hold mu.
func (p *Pipeline) leaveToOwner(e *entry) {
	owner := p.registry[e.message.Identity]
	if owner.seq != 0 && p.mark.forgotten(owner.seq) {
		owner.seq = e.seq
		return
	}
	if owner.state == reserved && owner.seq == 0 { // by a sweep that may give it back
		p.activity.Add(1)
	}
	p.settleRow(e)
}

// enter waits for room and tells whether a transaction ending at end lies in the recovery window, as the window stands when the
// rows are reserved: a sweep may raise it while the reader waits. What waits for its check goes first. On success mu is held.
func (p *Pipeline) enter(ctx context.Context, end outbox.Position) (inWindow bool, err error) {
	for {
		if err := p.await(ctx, p.room); err != nil {
			return false, err
		}
		if inWindow = end.Compare(p.windowEnd) <= 0; inWindow || len(p.waiting) == 0 {
			return inWindow, nil
		}
		p.mu.Unlock()
		if err := p.checkWindow(ctx); err != nil {
			return false, err
		}
	}
}

// unfit says why the fast path does not publish a row; "" when it does. In the recovery window the due time is judged by the
// database, later. Callers hold mu.
func (p *Pipeline) unfit(m *outbox.Message, committed time.Time, inWindow bool) outbox.Cause {
	switch {
	case m.Status != outbox.Pending:
		return outbox.CauseStatus
	case !inWindow && !m.DueAt.IsZero() && m.DueAt.Sub(committed) > dueSlack:
		return outbox.CauseNotDue
	case p.topicSuspended(m.Topic):
		return outbox.CauseTopic
	}
	return ""
}

// launch counts an entry as being in the sink's hands. Callers hold mu and send it afterwards.
func (p *Pipeline) launch(e *entry, now time.Time) {
	if e.sends == 0 {
		e.first, e.silence = now, now
	}
	e.state = inFlight
	e.sends++
	if p.inFlight == 0 {
		p.quietSince = now
	}
	p.inFlight++
	p.inFlightB += e.size
	if e.seq == 0 {
		p.sweepFlight++
	}
}

// land takes an entry out of the sink's hands. Callers hold mu.
func (p *Pipeline) land(e *entry) {
	p.inFlight--
	p.inFlightB -= e.size
	if e.seq == 0 {
		p.sweepFlight--
	}
}

func (p *Pipeline) send(batch []*outbox.Message) {
	if len(batch) > 0 {
		p.sink.Send(batch, p.results)
	}
}

// deferRow forgets a row: the position moves on and the sweep does the work. A claim of ours is given back, which keeps the row
// owned until the table confirms it. Callers hold mu; the returned completion, if any, is for ack.
func (p *Pipeline) deferRow(e *entry, cause outbox.Cause) (outbox.Completion, bool) {
	p.countLet(cause, 1)
	if cause.Triggers() && p.cfg.Trigger != nil {
		p.cfg.Trigger()
	}
	m := e.message
	if m.Claim != "" {
		return p.answer(e, outbox.Completion{Identity: m.Identity, Action: outbox.ActionRelease, RetryCount: m.RetryCount, Claim: m.Claim, Entry: e}), true
	}
	delete(p.registry, m.Identity)
	p.settleRow(e)
	return outbox.Completion{}, false
}

// sweepIn makes a sweep see a row before the next one comes by itself, which may be too late for a row that is new in the table.
func (p *Pipeline) sweepIn(d time.Duration) {
	if p.cfg.SweepIn != nil {
		p.cfg.SweepIn(d)
	}
}

// answer moves an entry to the care of ack, without the body: the sink has answered, so nobody reads it any more, and while
// the database is away many may wait. Callers hold mu.
func (p *Pipeline) answer(e *entry, s outbox.Completion) outbox.Completion {
	e.state = answered
	if e.message != nil {
		e.message.Body, e.message.Headers = nil, nil
	}
	p.unwritten++
	if e.swept() {
		p.sweepUnwritten++
	}
	return s
}

// settleRow settles one row in the low-water mark; a bookkeeping error is ours and is reported. Callers hold mu.
func (p *Pipeline) settleRow(e *entry) {
	if e.seq == 0 {
		return
	}
	if err := p.mark.settle(e.seq); err != nil {
		p.metrics.bugs.Inc()
		p.log.Error("progress accounting is wrong: please report this", zap.Error(err))
	}
}

func (p *Pipeline) countDeferred(list []outbox.Deferred) {
	trigger := false
	for _, l := range list {
		p.countLet(l.Cause, max(l.Rows, 1))
		trigger = trigger || l.Cause.Triggers()
	}
	if trigger && p.cfg.Trigger != nil {
		p.cfg.Trigger()
	}
}
