package pipeline

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// windowPage is how many rows of the recovery window are checked in one query.
const windowPage = 500

// The recovery window is the stretch of the log that may hold rows handled before: from the checkpoint to the server's
// position at connect. Its rows wait, reserved, until a page is full or the end is reached.

// RaiseWindow extends the recovery window to pos: rows that the sweep is about to take will be checked when the log shows them.
func (p *Pipeline) RaiseWindow(pos outbox.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.windowEnd.Compare(pos) < 0 {
		p.windowEnd = pos
	}
	p.activity.Add(1) // the log shows later what the sweep takes now
}

// checkWindow asks the table about the waiting rows. It tries until the database answers: meanwhile the reader waits, which
// is right, for nothing behind may overtake. Callers hold order.
func (p *Pipeline) checkWindow(ctx context.Context) error {
	if len(p.waiting) == 0 {
		return nil
	}
	states, err := p.askStates(ctx)
	if err != nil {
		return err
	}
	for len(p.waiting) > 0 {
		if err := p.await(ctx, p.room); err != nil {
			return err
		}
		p.sortWindow(states)
	}
	return nil
}

// watchWindow completes the recovery check for rows that wait while the log shows nothing more. Unlike the reader it has the
// turn for one query at most, and never waits for room with it: who wants to move the position or to stop must get through.
func (p *Pipeline) watchWindow(ctx context.Context) {
	timer := time.NewTimer(idleTick)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait, err := p.checkQuietWindow(ctx)
		if err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			wait = windowRetry.Delay(failures, p.random())
			failures++
			p.log.Warn("cannot check rows of the recovery window, trying again", zap.Duration("in", wait), zap.Error(err))
		}
		timer.Reset(wait)
	}
}

// checkQuietWindow makes one attempt unless the reader is at work, and returns when to look again.
func (p *Pipeline) checkQuietWindow(ctx context.Context) (wait time.Duration, err error) {
	select {
	case p.order <- struct{}{}:
		defer p.order.release()
	default:
		return p.windowPace(), nil // the reader does it
	}
	if len(p.waiting) == 0 {
		return p.windowPace(), nil
	}
	states, err := p.states(ctx)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	if !p.room() {
		p.mu.Unlock()
		return tick, nil
	}
	p.sortWindow(states)
	return tick, nil
}

func (p *Pipeline) windowPace() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.offered.Compare(p.windowEnd) < 0 {
		return tick
	}
	return idleTick
}

// sortWindow publishes the waiting rows that are still PENDING and not waiting for a retry, as far as there is room. A row that
// is not found may not be visible yet and is deferred with a trigger; every other row is settled. Callers hold order and mu,
// which is released.
func (p *Pipeline) sortWindow(states map[outbox.Identity]outbox.Candidate) {
	now := time.Now()
	var ready []*outbox.Message
	for len(p.waiting) > 0 && p.room() {
		e := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.waitingB -= e.size
		state, found := states[e.message.Identity]
		switch {
		case !found:
			p.deferRow(e, outbox.CauseNotFound)
		case state.Status == outbox.Pending && state.Waiting:
			p.deferRow(e, outbox.CauseWaiting)
			p.sweepIn(time.Duration(state.DueInMilli) * time.Millisecond)
		case state.Status == outbox.Pending && p.topicSuspended(e.message.Topic):
			p.deferRow(e, outbox.CauseTopic)
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
}

// windowRetry is the wait between attempts to check the window.
var windowRetry = outbox.Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second}

func (p *Pipeline) askStates(ctx context.Context) (map[outbox.Identity]outbox.Candidate, error) {
	for failures := 0; ; failures++ {
		states, err := p.states(ctx)
		if err == nil {
			return states, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		wait := windowRetry.Delay(failures, p.random())
		p.log.Warn("cannot check rows of the recovery window, trying again", zap.Int("rows", len(p.waiting)), zap.Duration("in", wait), zap.Error(err))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// states asks the table about the waiting rows, once. Callers hold order.
func (p *Pipeline) states(ctx context.Context) (map[outbox.Identity]outbox.Candidate, error) {
	ids := make([]outbox.Identity, len(p.waiting))
	for i, e := range p.waiting {
		ids[i] = e.message.Identity
	}
	list, err := p.checker.States(ctx, ids)
	if err != nil {
		return nil, err
	}
	states := make(map[outbox.Identity]outbox.Candidate, len(list))
	for _, c := range list {
		states[c.Identity] = c
	}
	return states, nil
}

// deferWindow drops the waiting rows without a check: the position is moved elsewhere. Callers hold order.
func (p *Pipeline) deferWindow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.waiting {
		p.deferRow(e, outbox.CauseGap)
	}
	p.activity.Add(1) // for what the log showed, and what it will not show
	p.waiting, p.waitingB, p.windowEnd = nil, 0, outbox.Position{}
}
