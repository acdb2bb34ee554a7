package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline/reserved"
)

// queryTimeout ends a statement on a silent connection.
const queryTimeout = 30 * time.Second

// retry is the wait after consecutive failed sweeps.
var retry = outbox.Backoff{Base: time.Second, Max: 30 * time.Second}

// run is one sweep, or one pass of timers.
type run struct {
	path    outbox.Path
	zero    bool // without threshold
	replica bool // a table was read on the replica
	swept   int  // tables that were swept to the end

	mu        sync.Mutex // of the next four, while batches run
	published int
	fresh     int // of these, rows that were never tried
	undue     int // of these, rows without a due time
	claimed   int // claimed rows of the current table that were found and not handed over

	// A claim of an earlier process on a row of the current table, or of any table, could not be taken over: the row was owned.
	held, heldAny bool

	first   bool            // the current table has not been swept to the end yet
	orphans map[string]bool // of the current table, see claims
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
	if !r.replica { // a replica shows the past
		s.flow.Swept(outbox.Sweep{Began: now.Add(-took), AnyAge: r.zero, Untried: r.undue, Within: s.cfg.Threshold + 2*s.cfg.Interval})
	}
	s.lastSuccess.Store(now.UnixNano())
	s.lastRows.Store(int64(r.published))
	s.plan.done(now, s.cfg.Interval)
	if r.heldAny {
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

// sweep sweeps all tables; a failed one does not prevent the others.
func (s *Sweeper) sweep(ctx context.Context, r *run) error {
	var first error
	failed := 0
	useReplica := s.cfg.Replica != nil && !r.zero && s.replica.next()
	for _, name := range s.cfg.Tables {
		began := time.Now()
		err := s.sweepTable(ctx, r, name, useReplica)
		if notNow(err) || ctx.Err() != nil {
			return err
		}
		s.triggers.timers[name].swept(err == nil, time.Now())
		if err != nil {
			failed++
			if first == nil {
				first = fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		r.swept++
		s.claims.done(name, r.orphans, r.held, r.claimed == 0 && !r.replica, began)
	}
	if failed > 1 {
		return fmt.Errorf("%w (and %d more tables)", first, failed-1)
	}
	return first
}

// notNow reports whether no row of any table may be published at present.
func notNow(err error) bool {
	return errors.Is(err, outbox.ErrBrokerAway) || errors.Is(err, outbox.ErrPaused) || errors.Is(err, outbox.ErrMoved)
}

func (s *Sweeper) sweepTable(ctx context.Context, r *run, name string, useReplica bool) error {
	// Where the age of a row is unknown the query returns young rows too. The position rule, not the age, decides whether a row
	// is published; the age only saves the check of rows of the binlog path.
	query := table.DueQuery{
		Threshold: s.cfg.Threshold, Horizon: -overdue, ExpiredClaims: s.cfg.ClaimTimeout, Limit: s.cfg.pageRows(),
	}
	if r.zero {
		query.Threshold = 0
	}
	r.held, r.claimed = false, 0
	if r.first, r.orphans = s.claims.begin(name); r.first || len(r.orphans) > 0 {
		query.ExpiredClaims = 0 // no other relay is active: a claim that is not owned here is of a process that has ended, or an orphan
		useReplica = false
	}
	b := newBatches(s.cfg.Workers, s.cfg.alone(name))
	err := s.list(ctx, r, b, name, query, useReplica)
	return cmp.Or(b.wait(), err)
}

// list reads the due rows of a table, page by page. The first page is one batch, so that its rows are sent soon. Where batches
// overlap later pages have several, because each page costs a query, a query for the end of the log and a wait for the reader. On
// MariaDB only a heartbeat shows that the reader has passed our own writes.
func (s *Sweeper) list(ctx context.Context, r *run, b *batches, name string, query table.DueQuery, useReplica bool) error {
	for at := (table.Cursor{}); !at.Done(); {
		asked := time.Now()
		page, next, err := s.due(ctx, name, at, query, useReplica)
		if err != nil && useReplica && ctx.Err() == nil {
			s.replica.failed(err)
			useReplica, at = false, table.Cursor{} // again on the primary: what was published meanwhile is no longer due
			continue
		}
		if err != nil {
			return err
		}
		r.replica = r.replica || useReplica
		before := r.sum()
		if err := s.takePage(ctx, r, b, name, asked, page); err != nil {
			return err
		}
		if err := s.pace(ctx, asked, r.sum()-before); err != nil {
			return err
		}
		at = next
		if !b.alone {
			query.Limit = min(2*query.Limit, listed*s.cfg.Batch)
		}
	}
	if useReplica {
		s.replica.answered()
	}
	return nil
}

func (s *Sweeper) due(ctx context.Context, name string, at table.Cursor, q table.DueQuery, useReplica bool) ([]outbox.Candidate, table.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if useReplica {
		return s.cfg.Replica.Due(ctx, name, at, q)
	}
	return s.rows.Due(ctx, name, at, q)
}

// takePage sends the rows of one page to the sink that no other path will send.
//
// The rows were visible before the end of the log is read here, so their transactions are before that end. Once everything up to
// it was offered, rows without an owner in the registry will not come from the log. A replica shows a row later than the primary,
// so that is true for its rows, too; the claim and the read-back on the primary check changes since then.
func (s *Sweeper) takePage(ctx context.Context, r *run, b *batches, name string, asked time.Time, page []outbox.Candidate) error {
	r.found(page)
	take, later := s.pick(r, page)
	if len(take)+len(later) == 0 {
		return nil
	}
	end, err := s.logEnd(ctx)
	if err != nil {
		return err
	}
	s.metrics.rows(name, rowWaiting).Add(float64(len(later)))
	for i := range later {
		s.later(name, &later[i], asked, &end)
	}
	if err := s.flow.AwaitLog(ctx, end, s.cfg.Patience); err != nil {
		return err
	}
	for batch := range slices.Chunk(take, s.cfg.Batch) {
		if err := s.takeBatch(ctx, r, b, name, asked, end, batch); err != nil {
			return err
		}
	}
	return nil
}

// takeBatch sends rows from before end to the sink when there is room for a batch. It checks the flow again then: meanwhile the
// broker may have gone away, an operator may have paused the relay, or the reader may have gone back.
func (s *Sweeper) takeBatch(ctx context.Context, r *run, b *batches, name string, asked time.Time, end outbox.LogEnd, take []outbox.Candidate) error {
	if err := b.room(); err != nil {
		return err
	}
	if err := s.flow.AwaitLog(ctx, end, s.cfg.Patience); err != nil {
		return err
	}
	free, suspended := s.reserve(name, take)
	if s.claims.earlier(name, free)+s.claims.earlier(name, suspended) < s.claims.earlier(name, take) {
		r.held, r.heldAny = true, true // by the recovery window, which forgets claimed rows when it has checked them
	}
	if len(free) == 0 {
		return nil
	}
	return b.take(func(previous <-chan struct{}) error { return s.publish(ctx, r, name, asked, free, previous) })
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
func (s *Sweeper) pick(r *run, page []outbox.Candidate) (take, later []outbox.Candidate) {
	take = make([]outbox.Candidate, 0, len(page))
	for _, c := range page {
		switch {
		case c.Status == outbox.Sending && !r.first && len(r.orphans) > 0 && !r.orphans[c.ClaimToken]:
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
func (s *Sweeper) publish(ctx context.Context, r *run, name string, asked time.Time, rows []outbox.Candidate, previous <-chan struct{}) error {
	token := ""
	unread := func(n int, err error) error {
		if err == nil {
			return nil
		}
		s.claims.made(name, token, true)
		return fmt.Errorf("read %d claimed rows back (the next sweep takes them over): %w", n, err)
	}
	gone, err := reserved.Publish(ctx, s.flow, rows, reserved.Steps{
		Claim: func(ctx context.Context) (_ string, err error) {
			token, err = s.rows.Claim(ctx, rows)
			s.claims.made(name, token, err != nil)
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
				if m.Path = r.path; !m.DueAt.IsZero() { // by the database's clock
					m.Since = dueTime(asked, &c)
				}
			}
			return awaitPrevious(ctx, previous)
		},
		Taken: func(m *outbox.Message, c outbox.Candidate) { s.metrics.rows(name, r.count(c, !m.DueAt.IsZero())).Inc() },
	})
	if err == nil {
		s.metrics.rows(name, rowGone).Add(float64(gone))
	}
	return err
}
