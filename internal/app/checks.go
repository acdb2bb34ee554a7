package app

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/reconcile"
)

// checkMargin is how much more of the topics than of the tables a scheduled comparison reads, as the command does.
const checkMargin = time.Hour

// newChecks makes the scheduled comparison. It looks for no records without a row: rows leave their table, and topics may have other
// producers.
func (d *daemon) newChecks() *reconcile.Schedule {
	compare := func(ctx context.Context, window time.Duration) (reconcile.Report, error) {
		return Reconcile(ctx, d.cfg, ReconcileOptions{From: window.String(), Margin: checkMargin, IgnoreExtra: true})
	}
	return reconcile.NewSchedule(d.cfg.Reconcile.Every, compare, d.log.Named("reconcile"), d.registry)
}

// showChecks is nil while nothing is ever compared.
func (d *daemon) showChecks(now time.Time) *operator.ReconcileStatus {
	s, on := d.checks.State()
	if !on {
		return nil
	}
	return &operator.ReconcileStatus{
		Running: s.Running, LastSeconds: ageOf(s.Last, now), Missing: s.Missing, Different: s.Different, Repeated: s.Repeated, Error: s.Error,
	}
}
