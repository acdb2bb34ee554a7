package pipeline

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// zonePage is how many rows of the catch-up zone are checked in one query.
const zonePage = 500

// The catch-up zone is the stretch of the log that may hold rows handled before: from the checkpoint to the server's
// position at connect. Its rows wait, reserved, until a page is full or the end is reached.

// RaiseZone extends the catch-up zone to pos: rows that the sweep is about to take will be checked when the log shows them.
func (p *Pipeline) RaiseZone(pos outbox.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.zoneEnd.Compare(pos) < 0 {
		p.zoneEnd = pos
	}
}

// checkZone asks the table about the waiting rows and publishes those that are still PENDING and not waiting for a retry. A
// row that is not found may not be visible yet and is let go with a nudge; every other row is settled. It tries until the
// database answers: meanwhile the reader waits, which is right, for nothing behind may overtake. Callers hold order.
func (p *Pipeline) checkZone(ctx context.Context) error {
	if len(p.waiting) == 0 {
		return nil
	}
	rows := p.waiting
	states, err := p.askStates(ctx, rows)
	if err != nil {
		return err
	}
	p.waiting = nil
	if err := p.await(ctx, p.room); err != nil {
		p.waiting = rows
		return err
	}
	now := time.Now()
	var ready []*outbox.Message
	for _, e := range rows {
		state, found := states[e.message.Identity]
		switch {
		case !found:
			p.letGo(e, outbox.CauseNotFound)
		case state.Status == outbox.Pending && state.Waiting:
			p.letGo(e, outbox.CauseWaiting)
		case state.Status == outbox.Pending && p.topicParked(e.message.Topic):
			p.letGo(e, outbox.CauseTopic)
		case state.Status == outbox.Pending:
			e.message.RetryCount = state.RetryCount
			p.launch(e, now)
			ready = append(ready, e.message)
		default: // final, or claimed by a sweep whose claim will expire
			delete(p.registry, e.message.Identity)
			p.settleRow(e)
		}
	}
	p.mu.Unlock()
	p.send(ready)
	return nil
}

func (p *Pipeline) askStates(ctx context.Context, rows []*entry) (map[outbox.Identity]outbox.Candidate, error) {
	ids := make([]outbox.Identity, len(rows))
	for i, e := range rows {
		ids[i] = e.message.Identity
	}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		list, err := p.checker.States(ctx, ids)
		if err == nil {
			states := make(map[outbox.Identity]outbox.Candidate, len(list))
			for _, c := range list {
				states[c.Identity] = c
			}
			return states, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p.log.Warn("cannot check rows of the catch-up zone, trying again", zap.Int("rows", len(ids)), zap.Duration("in", wait), zap.Error(err))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// letGoZone drops the waiting rows without a check: the position is moved elsewhere. Callers hold order.
func (p *Pipeline) letGoZone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.waiting {
		p.letGo(e, outbox.CauseGap)
	}
	p.waiting, p.zoneEnd = nil, outbox.Position{}
}
