package retention

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// queryTimeout ends a statement on a silent connection.
const queryTimeout = 30 * time.Second

// retry is the wait after consecutive failed passes.
var retry = outbox.Backoff{Base: time.Minute, Max: time.Hour}

// errWindow ends a pass whose hours are over.
var errWindow = errors.New("the window is closed")

// pass is one pass over all tables.
type pass struct {
	asked bool                      // on request: the window does not count
	opens time.Duration             // until the next window of a skipped table
	ends  time.Time                 // of the current window; zero when there is none
	left  map[string]map[string]int // by table and action
	total int

	looked    time.Time // when the history list and the replica were checked
	noHistory bool      // the history list cannot be read
	noReplica bool      // the replica does not answer
}

// once makes one pass and returns the wait until the next one.
func (r *Retention) once(ctx context.Context, asked bool) (wait time.Duration) {
	p := &pass{asked: asked, left: map[string]map[string]int{}}
	r.update(func(s *State) { s.Running, s.Rows, s.Error = true, 0, "" })
	began := time.Now()
	err := r.tables(ctx, p)
	r.metrics.paused.Set(0)
	r.update(func(s *State) { s.Running, s.Paused = false, "" })
	if p.total > 0 {
		r.log.Info("final rows have left the tables", zap.Any("rows", p.left), zap.Duration("took", time.Since(began)))
	}
	switch {
	case ctx.Err() != nil:
		return 0
	case errors.Is(err, errWindow):
		r.metrics.runs.WithLabelValues(runWindow).Inc()
		return min(r.cfg.Interval, p.opens)
	case err != nil:
		r.metrics.runs.WithLabelValues(runFailed).Inc()
		r.update(func(s *State) { s.Error = err.Error() })
		if r.failures++; r.failures == 1 {
			r.log.Warn("old rows cannot be removed from a table, trying again", zap.Error(err))
		}
		return retry.Delay(r.failures-1, 0.5)
	}
	if r.failures > 0 {
		r.log.Info("old rows leave the tables again", zap.Int("failed_attempts", r.failures))
		r.failures = 0
	}
	r.metrics.runs.WithLabelValues(runComplete).Inc()
	r.update(func(s *State) { s.Last = time.Now() })
	return r.cfg.Interval
}

// tableShare is how long one of several tables is worked on before the others continue: the window may close before all old rows of one have left.
const tableShare = time.Minute

// progress is how far a pass has come in a table.
type progress struct {
	name, after string
	done        bool
}

// tables processes all tables alternately; a failed one does not prevent the others.
func (r *Retention) tables(ctx context.Context, p *pass) error {
	var open []*progress
	for _, name := range r.cfg.Tables {
		if len(r.cfg.Expiries[name]) > 0 {
			open = append(open, &progress{name: name})
		}
	}
	var failed []error
	for len(open) > 0 {
		at := open[0]
		err := r.table(ctx, p, at, len(open) > 1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = append(failed, err)
		}
		if open = open[1:]; err == nil && !at.done {
			open = append(open, at)
		}
	}
	if i := slices.IndexFunc(failed, func(err error) bool { return !errors.Is(err, errWindow) }); i >= 0 {
		return failed[i]
	}
	return errors.Join(failed...)
}

// table goes through one table, to its end or, if that is limited, until its share is over. A row that cannot be removed stays and is reported; the
// others leave.
func (r *Retention) table(ctx context.Context, p *pass, at *progress, limited bool) error {
	if err := r.window(ctx, p, at.name); err != nil {
		return err
	}
	for began := time.Now(); !at.done && !(limited && time.Since(began) >= tableShare); {
		asked := time.Now()
		page, err := r.page(ctx, at.name, at.after)
		if err != nil {
			return err
		}
		if err := r.yield(ctx, p, time.Since(asked)); err != nil {
			return err
		}
		for i, ids := range page.IDs {
			for batch := range slices.Chunk(ids, r.cfg.Batch) {
				if err := r.batch(ctx, p, at.name, r.cfg.Expiries[at.name][i], batch); err != nil {
					return err
				}
			}
		}
		at.after, at.done = page.Next, page.Done
	}
	return nil
}

func (r *Retention) page(ctx context.Context, name, at string) (table.ExpiredPage, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return r.rows.Expired(ctx, name, at, r.cfg.Expiries[name])
}

// batch removes rows and then waits, so that the server can purge. A row that the server refuses to remove stays, and is counted
// as refused. A stop interrupts the transaction, and the server rolls it back.
func (r *Retention) batch(ctx context.Context, p *pass, name string, e table.Expiry, ids []string) error {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, queryTimeout)
	left, err := r.rows.Expire(bounded, name, e, ids)
	cancel()
	p.count(name, action(e), left.Rows)
	r.metrics.rows(name, action(e)).Add(float64(left.Rows))
	r.metrics.rows(name, rowSkipped).Add(float64(left.Skipped))
	r.metrics.rows(name, rowRefused).Add(float64(left.Refused))
	r.update(func(s *State) { s.Rows = p.total })
	if err != nil {
		return err
	}
	if left.Refused > 0 {
		r.log.Warn("the server refuses to remove old rows from their table; they stay in it", zap.String("table", name),
			zap.Int("rows", left.Refused), zap.String("last_id", left.ID), zap.String("reason", left.Reason))
	}
	return r.yield(ctx, p, time.Since(began))
}

func (p *pass) count(name, action string, rows int) {
	if rows == 0 {
		return
	}
	if p.left[name] == nil {
		p.left[name] = map[string]int{}
	}
	p.left[name][action] += rows
	p.total += rows
}
