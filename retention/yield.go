package retention

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// share: the pause after a batch is this many times as long as the batch took, so deletes use a quarter of one connection.
const share = 3

// lookEvery is the interval between checks of the history list and the replica.
const lookEvery = time.Second

// window sets until when rows of the table may leave.
func (r *Retention) window(ctx context.Context, p *pass, name string) error {
	p.ends = time.Time{}
	if p.asked || r.cfg.Window == (Window{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	now, err := r.rows.TimeOfDay(ctx, name)
	if err != nil {
		return fmt.Errorf("table %s: %w", name, err)
	}
	opens, closes := r.cfg.Window.opens(now)
	if opens > 0 {
		if p.opens == 0 || opens < p.opens {
			p.opens = opens
		}
		return errWindow
	}
	p.ends = time.Now().Add(closes)
	return nil
}

// yield waits in proportion to the work, and while the server's purge or the replica is behind.
func (r *Retention) yield(ctx context.Context, p *pass, took time.Duration) error {
	if !outbox.Wait(ctx, share*took, nil) {
		return ctx.Err()
	}
	for {
		if !p.ends.IsZero() && !time.Now().Before(p.ends) {
			if p.opens == 0 {
				p.opens = r.cfg.Interval
			}
			return errWindow
		}
		paused, err := r.behind(ctx, p)
		if err != nil || !paused {
			return err
		}
		if !outbox.Wait(ctx, lookEvery, nil) {
			return ctx.Err()
		}
	}
}

// behind reports whether the server's purge or the replica is behind. Both are checked once a second.
func (r *Retention) behind(ctx context.Context, p *pass) (bool, error) {
	if time.Since(p.looked) < lookEvery && r.State().Paused == "" {
		return false, nil
	}
	p.looked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	reason, err := r.purge(ctx, p)
	if err != nil {
		return false, err
	}
	if reason == "" {
		reason = r.lag(ctx, p)
	}
	r.pause(reason)
	return reason != "", nil
}

// purge returns why to wait for the server's purge. For an account that cannot read the history list it is read once per pass.
func (r *Retention) purge(ctx context.Context, p *pass) (reason string, err error) {
	if p.noHistory {
		return "", nil
	}
	length, known, err := r.rows.History(ctx)
	switch {
	case err != nil:
		return "", err
	case !known:
		p.noHistory = true
		if !r.noHistory {
			r.noHistory = true
			r.log.Info("the account may not see the length of the history list (PROCESS): old rows leave without regard to the server's purge")
		}
	case length > maxHistory:
		return fmt.Sprintf("the server has %d transactions to purge (history list), more than %d: a long transaction blocks the purge, or the purge is slow", length, maxHistory), nil
	}
	return "", nil
}

// lag returns why to wait for the replica. One that does not answer is queried once per pass: no reader uses it, and otherwise
// rows would never leave.
func (r *Retention) lag(ctx context.Context, p *pass) (reason string) {
	if r.cfg.Replica == nil || r.cfg.MaxLag <= 0 || p.noReplica {
		return ""
	}
	lag, following, err := r.cfg.Replica.Lag(ctx)
	switch {
	case err != nil:
		p.noReplica = true
		if !r.noReplica && ctx.Err() == nil {
			r.noReplica = true
			r.log.Warn("the replica of fallback.read_from does not say how far it is behind: old rows leave without regard to it", zap.Error(err))
		}
		return ""
	case !following:
		reason = "the replication of fallback.read_from has stopped"
	case lag > r.cfg.MaxLag:
		reason = fmt.Sprintf("the replica of fallback.read_from is %v behind, more than retention.max_replica_lag (%v)", lag, r.cfg.MaxLag)
	}
	r.noReplica = false
	return reason
}

func (r *Retention) pause(reason string) {
	before := r.State().Paused
	r.update(func(s *State) { s.Paused = reason })
	switch {
	case before == "" && reason != "":
		r.metrics.paused.Set(1)
		r.log.Info("no more old rows leave their tables for now", zap.String("reason", reason))
	case before != "" && reason == "":
		r.metrics.paused.Set(0)
		r.log.Info("old rows leave their tables again: the server has purged, and the replica is near")
	}
}
