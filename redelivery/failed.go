package redelivery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

const (
	queryTimeout = 30 * time.Second
	pageRows     = 500
	// perRow is the pause after a row that was reset. A message that fails costs more than one that is sent, and many of them may
	// fail for one cause.
	perRow = 20 * time.Millisecond
	// share: the pause after a page is this many times as long as the page took.
	share = 3
)

var retry = outbox.Backoff{Base: 5 * time.Second, Max: 5 * time.Minute}

// lookEvery is the time between two passes on the rows of a table: a twentieth of their wait, so that they wait little longer.
func lookEvery(every time.Duration) time.Duration {
	return min(max(every/20, time.Second), 5*time.Minute)
}

// failedPass is a pass over the FAILED rows of a table.
type failedPass struct {
	at    table.Cursor
	total int // rows that were reset
}

// failed processes a page of the FAILED rows of a table, and returns the wait until the next time.
func (r *Redelivery) failed(ctx context.Context, name string, every time.Duration) time.Duration {
	if !r.flow.Takes() {
		return time.Second
	}
	p, open := r.failedPasses[name]
	if !open {
		if !r.rows.DatesFailures(name) {
			wait, err := r.untilPass(name, every)
			if err != nil || wait > 0 {
				return r.outcome(ctx, name, err, min(wait, lookEvery(every)))
			}
		}
		p = &failedPass{}
		r.failedPasses[name] = p
	}
	err := r.failedPage(ctx, name, every, p)
	if err == nil && !p.at.Done() {
		return 0
	}
	delete(r.failedPasses, name)
	if p.total > 0 {
		r.log.Info("FAILED rows are tried again", zap.String("table", name), zap.Int("rows", p.total))
	}
	return r.outcome(ctx, name, err, lookEvery(every))
}

// outcome returns the wait: next, or a pause after an error.
func (r *Redelivery) outcome(ctx context.Context, name string, err error, next time.Duration) time.Duration {
	switch {
	case ctx.Err() != nil:
		return next
	case err != nil:
		r.metrics.errors.Inc()
		if r.fails[name]++; r.fails[name] == 1 {
			r.log.Warn("FAILED rows cannot be tried again for now; retrying", zap.String("table", name), zap.Error(err))
		}
		r.state.update(name, func(s *State) { s.Error = err.Error() })
		return retry.Delay(r.fails[name]-1, 0.5)
	case r.fails[name] > 0:
		r.fails[name] = 0
		r.log.Info("FAILED rows are tried again", zap.String("table", name))
		r.state.update(name, func(s *State) { s.Error = "" })
	}
	return next
}

// passOf returns the name under which the time of a table's next pass is stored.
func passOf(name string) outbox.Identity {
	return outbox.Identity{Table: "retry.failed_every", ID: name}
}

// untilPass returns the wait for FAILED rows of a table that do not record when they failed: all of them are tried again in one
// pass, and the next pass begins after the configured wait. The pass is recorded before it begins, so that restarts do not repeat
// it.
func (r *Redelivery) untilPass(name string, every time.Duration) (time.Duration, error) {
	now := time.Now()
	w, known := r.waits.Wait(passOf(name))
	wait := w.Due.Sub(now)
	if known && wait > 0 && wait <= every {
		return wait, nil
	}
	if !known || wait > every { // the configuration has changed
		wait = every
	}
	return max(0, wait), r.waits.Keep([]table.Waiting{{Identity: passOf(name), Wait: table.Wait{Due: now.Add(every)}}}, nil)
}

// failedPage resets those rows of the next page that have been FAILED for long enough. A row whose change the server refuses stays
// FAILED and is reported; the others are reset.
func (r *Redelivery) failedPage(ctx context.Context, name string, every time.Duration, p *failedPass) error {
	began := time.Now()
	page, next, err := r.page(ctx, name, p.at, table.FinalQuery{Status: outbox.Failed, Age: every, Limit: pageRows})
	if err != nil {
		return err
	}
	p.at = next
	took := time.Since(began)
	n, err := r.setBack(ctx, name, page) // at once: a row may be retried by an operator, and fail again, meanwhile
	p.total += n
	if err != nil {
		return err
	}
	outbox.Wait(ctx, share*took+time.Duration(n)*perRow, nil)
	return nil
}

func (r *Redelivery) page(ctx context.Context, name string, at table.Cursor, q table.FinalQuery) ([]outbox.Candidate, table.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return r.rows.Final(ctx, name, at, q)
}

// setBack sets rows without an owner to PENDING. It asks again whether the relay may publish: its lease may have lapsed while the page was read,
// and another relay may have tried the rows since.
func (r *Redelivery) setBack(ctx context.Context, name string, page []outbox.Candidate) (int, error) {
	if len(page) == 0 || ctx.Err() != nil || !r.flow.Takes() {
		return 0, nil
	}
	free, _ := r.flow.Reserve(page)
	if len(free) == 0 {
		return 0, nil
	}
	ids := make([]outbox.Identity, len(free))
	for i := range free {
		ids[i] = free[i].Identity
	}
	r.cfg.Retried(ids)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	n, err := r.rows.RetryFailed(bounded, ids)
	r.flow.SetBack(free) // also after an error: some may be PENDING
	r.metrics.retried.WithLabelValues(name).Add(float64(n))
	r.state.update(name, func(s *State) { s.Retried += int(n) })
	return int(n), err
}
