package retention

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// share is how many times as long as a batch took the pause behind it is: deleting uses a quarter of one connection.
const share = 3

// lookEvery is how often the history list is looked at.
const lookEvery = time.Second

// window finds out until when rows of the table may leave.
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

// yield waits after work that took so long, and as long as the server does not keep up with what it has to purge.
func (r *Retention) yield(ctx context.Context, p *pass, took time.Duration) error {
	if err := sleep(ctx, share*took); err != nil {
		return err
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
		if err := sleep(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// behind tells whether the history list is too long. It is looked at once a second; an account that may not see it is asked once a pass.
func (r *Retention) behind(ctx context.Context, p *pass) (bool, error) {
	if p.blind || time.Since(p.looked) < lookEvery && r.State().Paused == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	length, known, err := r.rows.History(ctx)
	if err != nil {
		return false, err
	}
	p.looked = time.Now()
	if !known {
		p.blind = true
		if !r.blind {
			r.blind = true
			r.log.Info("the account may not see the length of the history list (PROCESS): old rows leave without regard to the server's purge")
		}
		return false, nil
	}
	reason := ""
	if length > r.cfg.MaxHistory {
		reason = fmt.Sprintf("the server has %d transactions to purge (history list), more than %d: a long transaction holds them, or the purge is slow", length, r.cfg.MaxHistory)
	}
	r.pause(reason)
	return reason != "", nil
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
		r.log.Info("old rows leave their tables again: the server has purged")
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
