package tracker

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Activity counts what may leave a row that the log has shown PENDING and due to the sweep: it was deferred, its completion was not that
// it was sent, or part of the log was skipped. The count changes at the latest when the row has no owner any more. As long as it stays
// the same, a row that a sweep finds was not shown as inserted, or is older than that.
type Activity struct {
	sweeps   Sweeps
	deferred map[outbox.Cause]prometheus.Counter
	left     atomic.Uint64 // all of deferred
	count    atomic.Uint64
}

// Count returns the count.
func (a *Activity) Count() uint64 { return a.count.Load() }

// Disturb changes the count.
func (a *Activity) Disturb() { a.count.Add(1) }

// Deferred returns the number of rows that were left to the sweep since the start.
func (a *Activity) Deferred() uint64 { return a.left.Load() }

// Defer counts rows that are left to the sweep. A row that waits for its time shows that when a sweep finds it, and a row that
// does not begin as PENDING is for another program to change. Any other row may look to a sweep like one that the log never
// showed.
func (a *Activity) Defer(cause outbox.Cause, rows int) {
	a.deferred[cause].Add(float64(rows))
	a.left.Add(uint64(rows))
	switch cause {
	case outbox.CauseNotDue, outbox.CauseWaiting, outbox.CauseStatus:
	default:
		a.Disturb()
	}
	if cause.Triggers() {
		a.sweeps.Trigger()
	}
}
