package fallback

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// awaitReader is the position rule. The rows in hand were visible before the end of the log is read here, so their
// transactions lie before that end. Once everything up to it was offered, what the registry does not own never comes from
// the log. A reader that makes no progress is not waited for beyond Patience: the window is raised first, so that it checks
// these rows by primary key when it gets there.
func (s *Sweeper) awaitReader(ctx context.Context) error {
	query, cancel := context.WithTimeout(ctx, queryTimeout)
	end, err := s.source.End(query)
	cancel()
	if err != nil {
		return fmt.Errorf("read the end of the log: %w", err)
	}
	for {
		changed := s.flow.Changed() // before Offered, so that no change between the two is missed
		offered := s.flow.Offered()
		if offered.Compare(end) >= 0 {
			s.stall = stall{}
			return nil
		}
		if !s.flow.BreakerClosed() {
			return errBreakerOpen
		}
		left := s.stall.left(time.Now(), offered, s.flow.BackPressure(), s.cfg.Patience)
		if left <= 0 {
			s.raiseWindow(offered, end)
			return nil
		}
		// Not longer than a part of Patience: back-pressure and the breaker are looked at again and again.
		timer := time.NewTimer(min(left, s.cfg.Patience/10+time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (s *Sweeper) raiseWindow(offered, end outbox.Position) {
	s.flow.RaiseWindow(end)
	s.metrics.windowRaised.Inc()
	if !s.stall.told {
		s.stall.told = true
		s.log.Warn("the binlog reader is down or makes no progress: the sweep publishes without it",
			zap.Stringer("reader", offered), zap.Stringer("end", end), zap.Duration("patience", s.cfg.Patience))
	}
}

// stall measures how long the reader has made no progress while a sweep needed it to. It lasts from page to page and from
// sweep to sweep: a reader that is down is waited for once, not once for every page.
type stall struct {
	at    outbox.Position // the furthest it came
	since time.Time       // when it came there, or when back-pressure last excused it; zero: nobody waits
	told  bool            // it was logged
}

// left is how much of patience is left. Coming back to a place where it was before is no progress: a reader that fails at
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
