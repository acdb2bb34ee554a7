package app

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/reconcile"
)

// checkMargin is the time by which a scheduled comparison reads more of the topics than of the tables, as the command does.
const checkMargin = time.Hour

// newChecks makes the scheduled comparison. It does not look for records without a row: rows leave their table, and topics may have other
// producers.
func (in *instance) newChecks() *reconcile.Schedule {
	compare := func(ctx context.Context, window time.Duration) (reconcile.Report, error) {
		return Reconcile(ctx, in.cfg, ReconcileOptions{From: window.String(), Margin: checkMargin, IgnoreExtra: true})
	}
	return reconcile.NewSchedule(in.cfg.Reconcile.Every, compare, in.log.Named("reconcile"), in.registry)
}

// showChecks is nil while nothing is ever compared.
func (a *active) showChecks(now time.Time) *operator.ReconcileStatus {
	s, on := a.checks.State()
	if !on {
		return nil
	}
	return &operator.ReconcileStatus{
		Running: s.Running, LastSeconds: ageOf(s.Last, now), Missing: s.Missing, Different: s.Different, Repeated: s.Repeated, Error: s.Error,
	}
}
