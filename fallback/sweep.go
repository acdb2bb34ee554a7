package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/reserved"
)

// queryTimeout ends a statement on a silent connection.
const queryTimeout = 30 * time.Second

// retry is the wait after consecutive failed sweeps.
var retry = outbox.Backoff{Base: time.Second, Max: 30 * time.Second}

// run is one sweep, or one pass of timers.
type run struct {
	path      outbox.Path
	zero      bool // without threshold
	onReplica bool // a table was read on the replica
	swept     int  // lists that were worked off
	cut       bool // a table was being listed again when the last one was at its end
	heldAny   bool // a claim of an earlier process on a row of any table could not be taken over: the row was owned

	mu        sync.Mutex // of the next three, while batches run
	published int
	fresh     int // of these, rows that were never tried
	undue     int // of these, rows without a due time
}

// once makes one sweep and plans the next.
func (s *Sweeper) once(ctx context.Context) {
	began := time.Now()
	r := &run{path: outbox.PathSweep, zero: s.plan.begin(began)}
	err := s.sweep(ctx, r)
	now := time.Now()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, outbox.ErrBrokerAway), errors.Is(err, outbox.ErrPaused): // the end of either triggers a sweep
		result := runPaused
		if errors.Is(err, outbox.ErrBrokerAway) {
			result = runBreaker
		}
		s.metrics.runs.WithLabelValues(result).Inc()
		s.plan.failed(now, r.zero, false, s.cfg.Interval)
	case errors.Is(err, outbox.ErrMoved):
		s.metrics.runs.WithLabelValues(runMoved).Inc()
		s.plan.failed(now, r.zero, false, 0) // begin again at once: the result may be of another server
	case err != nil:
		s.metrics.runs.WithLabelValues(runFailed).Inc()
		// If only some tables fail, a trigger for the others does not wait for them.
		s.plan.failed(now, r.zero, r.swept == 0, retry.Delay(s.failures, s.cfg.Random()))
		s.failed(err, now)
	default:
		s.completed(r, now, now.Sub(began))
	}
}

// failed records an incomplete sweep. Only the second consecutive one is a trouble.
func (s *Sweeper) failed(err error, now time.Time) {
	if s.failures++; s.failures == 1 {
		s.failing = now
		s.log.Warn("sweep failed, retrying", zap.Error(err))
		return
	}
	s.trouble.Store(&trouble{err: err, since: s.failing})
}

func (s *Sweeper) completed(r *run, now time.Time, took time.Duration) {
	s.metrics.runs.WithLabelValues(runComplete).Inc()
	s.metrics.seconds.Observe(took.Seconds())
	if !r.onReplica { // a replica shows the past
		s.flow.Swept(outbox.Sweep{Began: now.Add(-took), AnyAge: r.zero, Untried: r.undue, Within: s.cfg.Threshold + 2*s.cfg.Interval})
	}
	s.lastSuccess.Store(now.UnixNano())
	s.lastRows.Store(int64(r.published))
	s.plan.done(now, s.cfg.Interval)
	if r.heldAny || r.cut {
		s.plan.trigger(now)
	}
	if s.failures > 0 {
		s.log.Info("sweep complete again", zap.Int("failed_attempts", s.failures))
		s.failures = 0
		s.trouble.Store(nil)
	}
	if r.published > 0 {
		s.log.Info("sweep handed rows to the sink", zap.Int("rows", r.published), zap.Int("not_tried_before", r.fresh),
			zap.Bool("without_threshold", r.zero), zap.Duration("took", took))
	}
}

// notNow reports whether no row of any table may be published at present.
func notNow(err error) bool {
	return errors.Is(err, outbox.ErrBrokerAway) || errors.Is(err, outbox.ErrPaused) || errors.Is(err, outbox.ErrMoved)
}

// takePage sends the rows of one page to the sink that no other path will send.
//
// The rows were visible before the end of the log is read here, so their transactions are before that end. Once everything up to
// it was offered, rows without an owner in the registry will not come from the log. A replica shows a row later than the primary,
// so that is true for its rows, too; the claim and the read-back on the primary check changes since then.
func (s *Sweeper) takePage(ctx context.Context, l *list, asked time.Time, page []outbox.Candidate) error {
	l.found(page)
	take, later := l.pick(page)
	if len(take)+len(later) == 0 {
		return nil
	}
	end, err := s.logEnd(ctx)
	if err != nil {
		return err
	}
	s.metrics.rows(l.name, rowWaiting).Add(float64(len(later)))
	for i := range later {
		s.later(l.name, &later[i], asked, &end)
	}
	if err := s.flow.AwaitLog(ctx, end, s.cfg.Patience); err != nil {
		return err
	}
	for batch := range slices.Chunk(take, s.cfg.Batch) {
		if err := s.takeBatch(ctx, l, asked, end, batch); err != nil {
			return err
		}
	}
	return nil
}

// takeBatch sends rows from before end to the sink when there is room for a batch. It checks the flow again then: meanwhile the
// broker may have gone away, an operator may have paused the relay, or the reader may have gone back.
func (s *Sweeper) takeBatch(ctx context.Context, l *list, asked time.Time, end outbox.LogEnd, take []outbox.Candidate) error {
	if err := l.batches.room(); err != nil {
		return err
	}
	if err := s.flow.AwaitLog(ctx, end, s.cfg.Patience); err != nil {
		return err
	}
	free, suspended := s.reserve(l.name, take)
	if s.claims.earlier(l.name, free)+s.claims.earlier(l.name, suspended) < s.claims.earlier(l.name, take) {
		l.held, l.heldAny = true, true // by the recovery window, which forgets claimed rows when it has checked them
	}
	if len(free) == 0 {
		return nil
	}
	return l.batches.take(func(previous <-chan struct{}) error { return s.publish(ctx, l, asked, free, previous) })
}

func (s *Sweeper) reserve(name string, take []outbox.Candidate) (free, suspended []outbox.Candidate) {
	free, suspended = s.flow.Reserve(take)
	s.metrics.rows(name, rowSuspended).Add(float64(len(suspended)))
	s.metrics.rows(name, rowOwned).Add(float64(len(take) - len(suspended) - len(free)))
	return free, suspended
}

func (s *Sweeper) logEnd(ctx context.Context) (outbox.LogEnd, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	generation := s.flow.Generation() // first: after a move the position may be one of another server
	end, err := s.source.End(ctx)
	if err != nil {
		return outbox.LogEnd{}, fmt.Errorf("read the end of the log: %w", err)
	}
	return outbox.LogEnd{Position: end, Generation: generation}, nil
}

// pick leaves out what must not be published now: later has rows that wait, where their due times are not in the table.
func (l *list) pick(page []outbox.Candidate) (take, later []outbox.Candidate) {
	take = make([]outbox.Candidate, 0, len(page))
	for _, c := range page {
		switch {
		case c.Status == outbox.Sending && !l.first && len(l.orphans) > 0 && !l.orphans[c.ClaimToken]:
			// A claim of a process that may be alive. A later sweep finds it when it has expired.
		case c.Waiting:
			later = append(later, c)
		default:
			take = append(take, c)
		}
	}
	return take, later
}

// publish claims rows that are reserved, reads them back and hands them to the sink when the previous batch was sent (nil: at once), see the
// package reserved. asked is when the table was asked for them. A claim whose rows were not read back is an orphan.
func (s *Sweeper) publish(ctx context.Context, l *list, asked time.Time, rows []outbox.Candidate, previous <-chan struct{}) error {
	defer s.claims.opened(l.name)()
	token := ""
	unread := func(n int, err error) error {
		if err == nil {
			return nil
		}
		s.claims.made(l.name, token, true)
		return fmt.Errorf("read %d claimed rows back (the next sweep takes them over): %w", n, err)
	}
	gone, err := reserved.Publish(ctx, s.flow, rows, reserved.Steps{
		Claim: func(ctx context.Context) (_ string, err error) {
			token, err = s.rows.Claim(ctx, rows)
			s.claims.made(l.name, token, err != nil)
			if err != nil {
				return "", fmt.Errorf("claim %d rows: %w", len(rows), err)
			}
			return token, nil
		},
		Pieces: func(ctx context.Context, ids []outbox.Identity) ([][]outbox.Identity, error) {
			pieces, err := s.rows.Pieces(ctx, ids)
			return pieces, unread(len(ids), err)
		},
		Read: func(ctx context.Context, ids []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error) {
			messages, rejected, err := s.rows.ReadBack(ctx, token, ids)
			return messages, rejected, unread(len(ids), err)
		},
		Before: func(messages []*outbox.Message, rows map[outbox.Identity]outbox.Candidate) error {
			for _, m := range messages {
				c := rows[m.Identity]
				if m.Path = l.path; !m.DueAt.IsZero() { // by the database's clock
					m.Since = dueTime(asked, &c)
				}
			}
			return awaitPrevious(ctx, previous)
		},
		Taken: func(m *outbox.Message, c outbox.Candidate) {
			s.metrics.rows(l.name, l.count(c, !m.DueAt.IsZero())).Inc()
		},
	})
	if err == nil {
		s.metrics.rows(l.name, rowGone).Add(float64(gone))
	}
	return err
}
