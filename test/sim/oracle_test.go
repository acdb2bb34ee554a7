package sim

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// quiet returns what is still to be done; "" when everything is done. Callers hold mu.
func (w *world) quiet() string {
	if w.at() < w.plan.healed {
		return "faults may happen"
	}
	if w.open > 0 {
		return "transactions are open"
	}
	var left []string
	more := 0
	for _, r := range w.lives {
		switch why := w.unfinished(r); {
		case why == "":
		case len(left) < 5:
			left = append(left, name(r.Identity)+" "+why)
		default:
			more++
		}
	}
	if more > 0 {
		left = append(left, fmt.Sprint("and ", more, " more"))
	}
	return strings.Join(left, ", ")
}

// unfinished returns why a row is not finished. Callers hold mu.
func (w *world) unfinished(r *row) string {
	switch {
	case r.logOnly:
		return cmp.Or(r.unpublished(), w.unanswered(r))
	case r.gone, r.kind == heldAtOnce, r.consumed, r.poison && r.setBacks > 1: // which comes back for ever
		return ""
	case r.status == outbox.Failed, r.status == outbox.Sent:
		return w.unfinishedAgain(r)
	case r.unwritable && r.records > 0 && (r.journalled > 0 || r.touched):
		return ""
	}
	return "is " + r.status.String()
}

// checkEnd looks at every row when all is over. Callers hold mu.
func (w *world) checkEnd() {
	for _, r := range w.lives {
		id := name(r.Identity)
		switch {
		case r.gone:
		case r.logOnly:
			w.checkKept(r)
		case r.status == outbox.Sent && r.records == 0 && !r.foreignSent && !r.copySeen:
			w.violation("P1", "%s is SENT, and the broker has no copy", id)
		case r.status == outbox.Sent && r.records < r.owed && !r.foreignSent:
			w.violation("P1", "%s was set back, and was not sent again", id)
		case r.status == outbox.Failed && !r.poison && r.burnt() <= w.budget(r):
			w.violation("budget", "%s is FAILED after %d refusals and %d silences of %d", id, r.refused, r.unknown, w.budget(r))
		}
		if r.kind == heldAtOnce && r.records > 0 && !r.touched {
			w.violation("held", "%s was published", id)
		}
		if r.retries > r.burnt() {
			w.violation("budget", "%s has %d retries after %d refusals", id, r.retries, r.refused)
		}
	}
	if w.plan.quiet {
		w.checkQuiet()
	}
}

// dueBound is how late a row may be published whose time has come: 100 ms. Where few rows may be in flight it also waits for
// other rows, whose transactions still hold their locks. Where timers are kept for few rows, a row may be known from the table alone after FLUSH
// LOGS. It then waits for the heartbeat which shows that the reader has come to the end of the new file.
func (p *plan) dueBound() time.Duration {
	bound := 100*time.Millisecond + p.slack()
	if p.settings.Pipeline.MaxInFlight+p.settings.Pipeline.MaxUnwritten > 0 {
		bound += 600 * time.Millisecond
	}
	if p.settings.Fallback.Timers > 0 && len(p.operations) > 0 {
		bound += heartbeat
	}
	return bound
}

// batchesBefore is how much later a row may be published because of rows that become due right before it: a pass takes a batch, in 20 ms. With a
// batch of the default size it is nothing. Callers hold mu.
func (w *world) batchesBefore(r *row) time.Duration {
	batch := w.plan.settings.Fallback.Batch
	if batch == 0 {
		return 0
	}
	n := 0
	for _, other := range w.lives {
		if early := r.due.Sub(other.due); early >= 0 && early < time.Second {
			n++
		}
	}
	return time.Duration((n-1)/batch) * 20 * time.Millisecond
}

// checkQuiet is for runs in which nothing fails: each row is published once, rows of the log within moments and in the order
// of their commits, delayed ones when they are due. Callers hold mu.
func (w *world) checkQuiet() {
	for _, r := range w.lives {
		if r.refused > w.budget(r)+1+r.setBacks && !(r.logOnly && w.plan.team != nil) { // another process restarts the count
			w.violation("budget", "%s was sent again after %d refusals of %d", name(r.Identity), r.refused, w.budget(r))
		}
	}
	last := map[string]*row{}
	for _, rec := range w.records {
		r := rec.row
		if r.records > 1 && !(r.logOnly && w.plan.team != nil) { // one that waits for another has a journal that stays behind
			w.violation("P3", "%s was published %d times", name(r.Identity), r.records)
		}
		waited := r.kind == delayed || r.retries > 0
		begin := r.committed
		if waited {
			begin = r.due
		}
		took := rec.at - begin.Sub(w.began)
		if w.plan.team != nil {
			took = 0 // perhaps no relay is active to publish it
		}
		switch {
		case rec.path == outbox.PathRedelivery, r.setBacks > 0:
			continue
		case r.grace > 0:
			w.checkGraceInTime(rec)
			continue
		case waited && w.orderKey(r) != "": // it may wait for another row of its key
			continue
		case waited && took > w.plan.dueBound()+w.batchesBefore(r):
			w.violation("due", "%s was published %v after its time", name(r.Identity), took)
			continue
		case waited || r.kind != plain && r.kind != shortLived || w.orderKey(r) != "" && rec.path != outbox.PathBinlog:
			continue
		case rec.path != outbox.PathBinlog && r.committed.Sub(w.began) > time.Second && w.plan.team == nil:
			w.violation("latency", "%s was published by the sweep, after %v", name(r.Identity), took)
			continue
		case rec.path == outbox.PathBinlog && took > 500*time.Millisecond+w.plan.slack() && r.committed.Sub(w.began) > time.Second:
			w.violation("latency", "%s was published %v after its commit", name(r.Identity), took)
		case rec.path != outbox.PathBinlog || r.key == "":
			continue
		}
		wire := r.topic + "/" + r.key
		if r.Table == sideTable && w.plan.ordered { // a row waits for the one before it of its own table
			wire = r.Table + "/" + wire
		}
		if before := last[wire]; before != nil && (before.entry > r.entry || before.entry == r.entry && before.place > r.place) {
			w.violation("P5", "%s was published after %s", name(r.Identity), name(before.Identity))
		}
		last[wire] = r
	}
}

// checkJournalEmpty is for a stop without any trouble: the table has everything, so the journal needs nothing. Sent rows of tables without a
// status stay when the mark was moved behind them: they leave with the next transaction.
func (w *world) checkJournalEmpty(i *incarnation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.lives {
		if r.journalled.has(i.disk) && !r.unwritable && !r.touched && !(r.logOnly && i.silent && r.of(i.life).forgiven) {
			w.violation("journal", "%s is still there after a stop without trouble", name(r.Identity))
		}
	}
}

// looksForGone reports whether the mark is before a row that the log has shown and the table does not show any more. The relay looks for it a
// while, because it might be not visible yet.
func (w *world) looksForGone(i *incarnation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.byID {
		if f := r.of(i.life); r.gone && !r.logOnly && f.offered && !f.handed && r.entry >= w.indexOf(i.disk.checkpoint) {
			return true
		}
	}
	return false
}

func (w *world) checkBugs(i *incarnation) {
	if n := i.bugCount(); n > 0 {
		w.violation("bookkeeping", "the relay counted %v internal errors", n)
	}
}
