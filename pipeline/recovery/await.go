package recovery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// AwaitLog waits until every transaction of the log up to end was offered: what nobody owns then never comes from the log. A reader
// that makes no progress is not waited for beyond patience: the window is raised first, so that it looks rows up when it gets there.
// The error is outbox.ErrBrokerAway while the breaker is not closed, outbox.ErrPaused while the intake is stopped, sink.ErrMayNot while this
// relay may not publish, else that of ctx.
func (r *Recovery) AwaitLog(ctx context.Context, end outbox.Position, patience time.Duration) error {
	for {
		changed, room := r.tracker.Changed(), r.dispatch.Changed() // first, so that no change is missed
		if err := r.intake(); err != nil {
			return err
		}
		offered := r.tracker.Offered()
		left := r.left(offered, end, patience)
		if left <= 0 {
			return nil
		}
		// Not longer than a part of patience: back-pressure is looked at again and again.
		timer := time.NewTimer(min(left, patience/10+time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-changed:
		case <-room:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Shown reports whether rows of the log up to end need not be waited for: every transaction was offered, or its rows are looked up before
// they are published. A reader that is still in the window, after a start, looks rows up anyway: it is made to do so up to end. The error
// is that of AwaitLog.
func (r *Recovery) Shown(end outbox.Position) (bool, error) {
	if err := r.intake(); err != nil {
		return false, err
	}
	offered := r.tracker.Offered()
	switch {
	case offered.Compare(end) >= 0:
		return true, nil
	case r.Covers(end):
	case r.Passed(offered):
		return false, nil
	default:
		r.Raise(end)
	}
	r.dispatch.Blind(end)
	return true, nil
}

// Pause stops the intake of the sweep, or lets it go on. A page that is on its way to the sink goes there.
func (r *Recovery) Pause(on bool) { r.paused.Store(on) }

// intake is why the sweep may take nothing now; nil when it may.
func (r *Recovery) intake() error {
	switch {
	case r.paused.Load():
		return outbox.ErrPaused
	case !r.dispatch.Closed():
		return outbox.ErrBrokerAway
	case !r.dispatch.May():
		return sink.ErrMayNot
	}
	return nil
}

// left is how much of patience is left; 0 when the sweep may go on.
func (r *Recovery) left(offered, end outbox.Position, patience time.Duration) time.Duration {
	pressure := !r.dispatch.Room() // the reader is held up by us: that it makes no progress is no sign of trouble in the log
	r.mu.Lock()
	if offered.Compare(end) >= 0 {
		r.stall = stall{}
		r.mu.Unlock()
		return 0
	}
	left := r.stall.left(time.Now(), offered, pressure, patience)
	tell := left <= 0 && !r.stall.told
	r.stall.told = r.stall.told || tell
	r.mu.Unlock()
	if left > 0 {
		return left
	}
	r.Raise(end)
	r.dispatch.Blind(end)
	r.raised.Inc()
	if tell {
		r.log.Warn("the binlog reader is down or makes no progress: the sweep publishes without it",
			zap.Stringer("reader", offered), zap.Stringer("end", end), zap.Duration("patience", patience))
	}
	return 0
}

// stall measures how long the reader has made no progress while a sweep needed it to. It lasts from page to page and from
// sweep to sweep: a reader that is down is waited for once, not once for every page.
type stall struct {
	at    outbox.Position // the furthest it came
	since time.Time       // when it came there, or when back-pressure last excused it; zero: nobody waits
	told  bool            // it was logged
}

// left is how much of patience is left. Coming back to a position where it was before is no progress: a reader that fails at
// the same transaction again and again reads the same stretch again and again.
func (s *stall) left(now time.Time, offered outbox.Position, excused bool, patience time.Duration) time.Duration {
	switch {
	case s.since.IsZero() || offered.Compare(s.at) > 0:
		*s = stall{at: offered, since: now}
	case excused:
		s.since = now
	}
	return patience - now.Sub(s.since)
}
