package recovery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// AwaitLog waits until every transaction of the log up to end was offered: a row without an owner then never comes from the log.
// It waits for a reader that makes no progress no longer than patience. Before it returns an error it raises the window, so that the
// reader looks rows up when it gets there.
// The error is outbox.ErrBrokerAway while the breaker is not closed, outbox.ErrPaused while the intake is stopped, sink.ErrMayNot while this
// relay may not publish, outbox.ErrMoved when the position was set elsewhere since the end was read, else that of ctx.
func (r *Recovery) AwaitLog(ctx context.Context, end outbox.LogEnd, patience time.Duration) error {
	for {
		changed, room := r.tracker.Changed(), r.dispatch.Changed() // first, so that no change is missed
		if err := r.intake(); err != nil {
			return err
		}
		left, err := r.left(end, patience)
		if err != nil || left <= 0 {
			return err
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
func (r *Recovery) Shown(end outbox.LogEnd) (bool, error) {
	if err := r.intake(); err != nil {
		return false, err
	}
	if end.IsZero() { // the log has shown them
		return true, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	offered := r.tracker.Offered()
	switch {
	case end.Generation != r.tracker.Generation():
		return false, outbox.ErrMoved
	case offered.Compare(end.Position) >= 0:
		return true, nil
	case end.Compare(r.end) <= 0:
	case r.end.Compare(offered) <= 0:
		return false, nil
	default:
		r.raise(end.Position)
	}
	r.dispatch.Ahead(end.Position)
	return true, nil
}

// Pause stops the intake of the sweep, or resumes it. A page that is being handed to the sink is still sent.
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

// left is how much of patience is left; 0 when the sweep may continue.
func (r *Recovery) left(end outbox.LogEnd, patience time.Duration) (time.Duration, error) {
	// The reader is held up by us: that it makes no progress is no sign of trouble in the log.
	pressure := !r.dispatch.Room() || r.asking.Load()
	r.mu.Lock()
	if end.Generation != r.tracker.Generation() { // under mu, as Reset is: what is raised here is of this generation
		r.mu.Unlock()
		return 0, outbox.ErrMoved
	}
	offered := r.tracker.Offered()
	if offered.Compare(end.Position) >= 0 {
		r.stall = stall{}
		r.mu.Unlock()
		return 0, nil
	}
	left := r.stall.left(time.Now(), offered, pressure, patience)
	if left > 0 {
		r.mu.Unlock()
		return left, nil
	}
	first := !r.stall.logged
	r.stall.logged = true
	r.raise(end.Position)
	r.dispatch.Ahead(end.Position)
	r.mu.Unlock()
	r.raised.Inc()
	if first {
		r.log.Warn("the binlog reader is down or makes no progress: the sweep publishes without it",
			zap.Stringer("reader", offered), zap.Stringer("end", end), zap.Duration("patience", patience))
	}
	return 0, nil
}

// stall measures how long the reader has made no progress while a sweep needed it to. It lasts from page to page and from
// sweep to sweep: a reader that is down is waited for once, not once for every page.
type stall struct {
	at     outbox.Position // the furthest it came
	since  time.Time       // when it came there, or when back-pressure last excused it; zero: no sweep waits
	logged bool            // at least once
}

// left is how much of patience is left. Coming back to a position where it was before is no progress: a reader that fails at
// the same transaction again and again reads the same range again and again.
func (s *stall) left(now time.Time, offered outbox.Position, excused bool, patience time.Duration) time.Duration {
	switch {
	case s.since.IsZero() || offered.Compare(s.at) > 0:
		*s = stall{at: offered, since: now}
	case excused:
		s.since = now
	}
	return patience - now.Sub(s.since)
}
