package sim

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is for the seeds whose application publishes its rows itself and marks them (tables[].grace): the relay does what it missed.

// claimEarly is how much before its time a row may be claimed.
const claimEarly = 50 * time.Millisecond

// graceShown is the grace as the table counts it: longer by claimEarly, so that no row is sent before its end.
func (r *row) graceShown() time.Duration {
	if r.grace == 0 {
		return 0
	}
	return r.grace + claimEarly
}

// mayBeClaimed reports whether the time of a PENDING row has come, or nearly so. The table refuses the claim of a row in its grace, and no process is to
// ask for one: all clocks are the same here. Callers hold mu.
func (w *world) mayBeClaimed(r *row) bool {
	left := time.Until(r.created.Add(r.graceShown()))
	if r.grace > 0 && left > claimEarly {
		w.violation("grace", "%s is to be claimed %v before the end of its grace", name(r.Identity), left)
		return false
	}
	return time.Until(r.due) <= claimEarly
}

// graceAccount is what the checks know of a row of such a table.
type graceAccount struct {
	marked bool // the application marked it before its grace was over
}

// drawGrace is drawn apart, so that the rest of a seed is what it was.
func (p *plan) drawGrace(d *dice) {
	if d.chance(0.12) {
		p.grace = d.between(300*time.Millisecond, 2500*time.Millisecond)
	}
}

// fate is what the application does about a row that it has committed.
type fate int

const (
	inTime     fate = iota
	diesFirst       // before it sends
	diesBehind      // after it has sent, before it marks
	late
)

// publishItself is the application's part for a row that is committed: it sends the message and marks the row, unless it dies. Callers hold mu.
func (w *world) publishItself(r *row) {
	if r.grace == 0 || r.kind == heldAtOnce || r.unwritable {
		return
	}
	d := newDice(w.seed, "application", hash(r.MessageID))
	took := d.between(time.Millisecond, r.grace*4/5)
	switch pick(d, inTime, inTime, inTime, inTime, diesFirst, diesFirst, diesBehind, late) {
	case diesFirst:
		return
	case diesBehind:
		w.note(0, "application sends", name(r.Identity), "and dies", 0)
		return
	case late:
		took = d.between(r.grace, 2*r.grace)
	}
	time.AfterFunc(took, func() { w.mark(r, d) })
}

// mark is the application's own UPDATE.
func (w *world) mark(r *row, d *dice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if down, is := covering(w.plan.database, w.at()); is { // it tries until the database answers
		time.AfterFunc(down.to-w.at()+d.between(0, time.Millisecond), func() { w.mark(r, d) })
		return
	}
	if r.gone || r.status != outbox.Pending && r.status != outbox.Sending && r.status != outbox.Failed {
		return
	}
	r.marked = time.Since(r.created) < r.grace && r.status == outbox.Pending
	r.status, r.foreignSent, r.final = outbox.Sent, true, time.Now()
	w.arrived(r)
	w.note(0, "application marks", name(r.Identity), "", 0)
	w.append(&entry{reason: "update"})
}

// checkGrace looks at a row that a process sends: the application has had its time and has not marked it. Callers hold mu.
func (w *world) checkGrace(r *row) {
	switch left := r.grace - time.Since(r.created); {
	case r.grace == 0 || r.gone:
	case r.marked:
		w.violation("grace", "%s is sent though the application marked it in time", name(r.Identity))
	case left > 0:
		w.violation("grace", "%s is sent %v before the end of its grace", name(r.Identity), left)
	}
}

// checkGraceInTime is for runs in which nothing fails: what the application left is published soon after its grace, counted from when the log
// showed it. A timer may have no room for it where there are few of them. Callers hold mu.
func (w *world) checkGraceInTime(rec record) {
	const shown = 500 * time.Millisecond // in the log, after the commit
	r := rec.row
	begin := r.committed.Add(r.grace)
	if r.due.After(begin) {
		begin = r.due
	}
	announced := w.plan.team == nil && r.kind == plain && r.retries == 0 && r.first.status == outbox.Pending && r.committed.Sub(w.began) > time.Second
	took := rec.at - begin.Sub(w.began)
	if announced && w.plan.settings.Fallback.Timers == 0 && w.orderKey(r) == "" && took > shown+w.plan.dueBound() {
		w.violation("grace", "%s was published %v after its grace", name(r.Identity), took)
	}
}
