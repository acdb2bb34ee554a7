package fallback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// queryTimeout ends a statement on a connection that has gone silent.
const queryTimeout = 30 * time.Second

// retry is the wait after sweeps that failed in a row.
var retry = outbox.Backoff{Base: time.Second, Max: 30 * time.Second}

// round is one sweep.
type round struct {
	zero      bool      // without threshold
	dueAt     time.Time // when the first row becomes due of those seen that are not; zero when there is none
	swept     int       // tables that were swept to the end
	published int
	fresh     int // of these, rows that nobody had tried
	undue     int // of these, rows without a due time

	// An earlier process's claim on a row of the table at hand, or of any, could not be taken over: somebody owned the row.
	held, heldAny bool
}

// once makes one sweep and plans the next.
func (s *Sweeper) once(ctx context.Context) {
	began := time.Now()
	r := &round{zero: s.plan.begin(began)}
	err := s.sweep(ctx, r)
	now := time.Now()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, outbox.ErrBrokerAway):
		s.metrics.runs.WithLabelValues(runBreaker).Inc()
		s.plan.postponed(now, r.zero, s.cfg.Interval) // the flow triggers a sweep when the broker is back
	case err != nil:
		s.metrics.runs.WithLabelValues(runFailed).Inc()
		// Where only some tables fail, a trigger for the others does not wait for them.
		s.plan.failed(now, r.zero, r.swept == 0, retry.Delay(s.failures, s.cfg.Random()))
		s.failures++
		if s.failures == 1 {
			s.log.Warn("the sweep is not complete, trying again: rows that the binlog did not deliver wait", zap.Error(err))
		}
	default:
		s.completed(r, now, now.Sub(began))
	}
}

func (s *Sweeper) completed(r *round, now time.Time, took time.Duration) {
	s.metrics.runs.WithLabelValues(runComplete).Inc()
	s.metrics.seconds.Observe(took.Seconds())
	s.flow.Swept(outbox.Sweep{Began: now.Add(-took), AnyAge: r.zero, Untried: r.undue, Blind: s.cfg.Threshold + 2*s.cfg.Interval})
	s.lastSuccess.Store(now.UnixNano())
	s.lastRows.Store(int64(r.published))
	s.plan.done(now, took, s.cfg.Interval, r.dueAt)
	if r.heldAny {
		s.plan.trigger(now)
	}
	if s.failures > 0 {
		s.log.Info("the sweep is complete again", zap.Int("failed_attempts", s.failures))
		s.failures = 0
	}
	if r.published > 0 {
		s.log.Info("the sweep published rows", zap.Int("rows", r.published), zap.Int("not_tried_before", r.fresh),
			zap.Bool("without_threshold", r.zero), zap.Duration("took", took))
	}
}

// sweep goes over all tables; one that fails does not keep the others from their turn.
func (s *Sweeper) sweep(ctx context.Context, r *round) error {
	var first error
	failed := 0
	for _, name := range s.cfg.Tables {
		err := s.sweepTable(ctx, r, name)
		if errors.Is(err, outbox.ErrBrokerAway) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			failed++
			if first == nil {
				first = fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		r.swept++
		s.swept[name] = s.swept[name] || !r.held
	}
	if failed > 1 {
		return fmt.Errorf("%w (and %d more tables)", first, failed-1)
	}
	return first
}

func (s *Sweeper) sweepTable(ctx context.Context, r *round, name string) error {
	// Where the age of a row is not known the query shows young rows too. The position rule, not the age, decides whether a
	// row is published; the age only spares the fast path's rows the look.
	query := table.DueQuery{
		Threshold: s.cfg.Threshold, Horizon: s.cfg.Interval, ExpiredClaims: s.cfg.ClaimTimeout, Limit: s.cfg.pageRows(),
	}
	if r.zero {
		query.Threshold = 0
	}
	r.held = false
	switch {
	case !s.swept[name]:
		query.ExpiredClaims = 0 // nobody else is active: what is claimed and not owned here is of a process that has ended
		delete(s.orphans, name)
	case s.orphans[name] != nil:
		query.ExpiredClaims = 0
	}
	for at := (table.Cursor{}); !at.Done(); {
		began, published := time.Now(), r.published
		page, next, err := s.due(ctx, name, at, query)
		if err != nil {
			return err
		}
		if err := s.takePage(ctx, r, name, page); err != nil {
			return err
		}
		if err := s.pace(ctx, began, r.published-published); err != nil {
			return err
		}
		at = next
	}
	delete(s.orphans, name)
	return nil
}

func (s *Sweeper) due(ctx context.Context, name string, at table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.rows.Due(ctx, name, at, q)
}

// takePage brings one page of rows to the sink, as far as nobody else will.
//
// The rows were visible before the end of the log is read here, so their transactions lie before that end. Once everything up to it
// was offered, what the registry does not own never comes from the log.
func (s *Sweeper) takePage(ctx context.Context, r *round, name string, page []outbox.Candidate) error {
	take := s.pick(r, name, page)
	if len(take) == 0 {
		return nil
	}
	end, err := s.logEnd(ctx)
	if err != nil {
		return err
	}
	if err := s.flow.AwaitLog(ctx, end, s.cfg.Patience); err != nil {
		return err
	}
	reserved, suspended := s.flow.Reserve(take)
	s.metrics.rows(name, rowSuspended).Add(float64(len(suspended)))
	s.metrics.rows(name, rowOwned).Add(float64(len(take) - len(suspended) - len(reserved)))
	if !s.swept[name] && claims(reserved)+claims(suspended) < claims(take) {
		r.held, r.heldAny = true, true // by the recovery window, which forgets claimed rows when it has looked at them
	}
	if len(reserved) == 0 {
		return nil
	}
	return s.publish(ctx, r, name, reserved)
}

func (s *Sweeper) logEnd(ctx context.Context) (outbox.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	end, err := s.source.End(ctx)
	if err != nil {
		return outbox.Position{}, fmt.Errorf("read the end of the log: %w", err)
	}
	return end, nil
}

// claims counts the rows that somebody has claimed.
func claims(rows []outbox.Candidate) (n int) {
	for i := range rows {
		if rows[i].Status == outbox.Sending {
			n++
		}
	}
	return n
}

// pick leaves out what is not to be published now.
func (s *Sweeper) pick(r *round, name string, page []outbox.Candidate) []outbox.Candidate {
	take := make([]outbox.Candidate, 0, len(page))
	for _, c := range page {
		switch {
		case s.orphans.hides(name, &c):
		case c.Waiting:
			if at := time.Now().Add(time.Duration(c.DueInMilli) * time.Millisecond); r.dueAt.IsZero() || at.Before(r.dueAt) {
				r.dueAt = at
			}
			s.metrics.rows(name, rowWaiting).Inc()
		default:
			take = append(take, c)
		}
	}
	return take
}

// publish claims rows that are reserved, reads them back and hands them to the sink. What is not handed over is released.
func (s *Sweeper) publish(ctx context.Context, r *round, name string, reserved []outbox.Candidate) error {
	open := make(map[outbox.Identity]outbox.Candidate, len(reserved))
	for _, c := range reserved {
		open[c.Identity] = c
	}
	defer func() { s.flow.Release(slices.Collect(maps.Values(open))) }()

	messages, rejected, err := s.claim(ctx, name, reserved)
	if err != nil {
		return err
	}
	s.metrics.rows(name, rowGone).Add(float64(len(reserved) - len(messages) - len(rejected)))
	for i := range rejected {
		id := rejected[i].Identity
		rejected[i].Entry = open[id].Entry
		delete(open, id)
	}
	for _, m := range messages {
		m.Entry = open[m.Identity].Entry
	}
	taken, err := s.flow.Publish(ctx, messages, rejected)
	for _, m := range messages[:taken] {
		s.countPublished(r, name, open[m.Identity], m.DueAt)
		delete(open, m.Identity)
	}
	return err
}

// claim makes the rows ours in the table and reads those that are. A stop does not cut between the two: a row that is
// claimed and never read back would wait for the end of its claim.
func (s *Sweeper) claim(ctx context.Context, name string, reserved []outbox.Candidate) ([]*outbox.Message, []outbox.Completion, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	token, err := s.rows.Claim(ctx, reserved)
	if err != nil {
		s.orphans.add(name, token)
		return nil, nil, fmt.Errorf("claim %d rows: %w", len(reserved), err)
	}
	ids := make([]outbox.Identity, len(reserved))
	for i, c := range reserved {
		ids[i] = c.Identity
	}
	messages, rejected, err := s.rows.ReadBack(ctx, token, ids)
	if err != nil {
		s.orphans.add(name, token)
		return nil, nil, fmt.Errorf("read %d claimed rows back (the next sweep takes them over): %w", len(reserved), err)
	}
	return messages, rejected, nil
}

func (s *Sweeper) countPublished(r *round, name string, c outbox.Candidate, due time.Time) {
	r.published++
	switch {
	case c.Status == outbox.Sending:
		s.metrics.rows(name, rowReclaimed).Inc()
	case c.RetryCount > 0:
		s.metrics.rows(name, rowRetry).Inc()
	default:
		r.fresh++
		if due.IsZero() {
			r.undue++
		}
		s.metrics.rows(name, rowNew).Inc()
	}
}
