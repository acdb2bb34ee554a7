package sim

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is the application: its transactions and everybody else who writes to the table.

// work starts everything that happens by the clock.
func (w *world) work() {
	for i := range w.plan.txns {
		t := w.plan.txns[i]
		time.AfterFunc(t.at+time.Duration(i), func() { w.begin(t, i) })
	}
	for _, o := range w.plan.operations {
		time.AfterFunc(o.at, func() { w.operate(o) })
	}
}

// begin inserts the rows of a transaction: they have their ids from now on.
func (w *world) begin(t txnPlan, number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if down, is := covering(w.plan.database, w.at()); is { // the application waits, too
		time.AfterFunc(down.to-w.at()+time.Duration(number)*time.Microsecond, func() { w.begin(t, number) })
		return
	}
	if t.kind == truncation {
		w.truncate(number)
		return
	}
	w.open++
	var rows []*row
	if t.kind != foreign {
		for i := range t.rows {
			rows = append(rows, w.newRow(t, i))
		}
	}
	time.AfterFunc(t.takes, func() { w.finish(t, number, rows) })
}

// finish commits a transaction or rolls it back.
func (w *world) finish(t txnPlan, number int, rows []*row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if down, is := covering(w.plan.database, w.at()); is {
		time.AfterFunc(down.to-w.at()+time.Duration(number)*time.Microsecond, func() { w.finish(t, number, rows) })
		return
	}
	w.open--
	switch t.kind {
	case rolledBack:
		return
	case foreign:
		w.append(&entry{reason: "foreign"})
	case logged:
		w.show(rows, w.append(&entry{reason: "insert and delete", rows: rows}))
	case hidden:
		w.enter(rows, -1, t.late)
	case deferred:
		w.enterDeferred(t, rows)
	case xa:
		w.open++
		w.append(&entry{reason: "XA PREPARE", deferred: shownOnly(rows, outbox.CauseXA)})
		time.AfterFunc(t.takes*20, func() { w.endXA(t, rows) })
	default:
		e := &entry{reason: "insert", rows: rows}
		w.enter(rows, w.append(e), t.late)
		if t.kind == shortLived {
			time.AfterFunc(t.late+t.takes, func() { w.remove(rows) })
		}
	}
}

// enterDeferred commits rows of which the log shows that they are there, and no more. Where columns cannot be named with certainty that may be
// some rows of a transaction, as with a body that cannot be read. Callers hold mu.
func (w *world) enterDeferred(t txnPlan, rows []*row) {
	e := &entry{reason: "deferred"}
	for _, r := range rows {
		if t.cause == outbox.CauseUnmapped && r.number%2 == 0 {
			e.rows = append(e.rows, r)
		} else {
			e.left = append(e.left, r)
		}
	}
	e.deferred = shownOnly(e.left, t.cause)
	w.enter(e.rows, w.append(e), t.late)
	w.enter(e.left, -1, t.late)
	for _, r := range e.left {
		w.shown++
		r.nth = w.shown
	}
}

func (w *world) endXA(t txnPlan, rows []*row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	if t.commit {
		w.enter(rows, -1, t.late)
	}
	w.append(&entry{reason: "XA end"})
}

// enter makes rows part of the table. They can be locked from now on, and seen a little later (A35), in the order of the log unless the server is
// set up otherwise (binlog_order_commits=OFF). Callers hold mu.
func (w *world) enter(rows []*row, entry int, late time.Duration) {
	visible := time.Now().Add(late)
	if !w.plan.unordered && len(rows) > 0 && rows[0].kind != hidden {
		if visible.Before(w.visible) {
			visible = w.visible
		}
		w.visible = visible
	}
	for _, r := range rows {
		r.entry, r.committed, r.visible = entry, time.Now(), visible
		r.first.status, r.first.due = r.status, r.due
		if entry >= 0 {
			w.shown++
			r.nth = w.shown
		}
		w.table[r.in()], w.byID[r.Identity] = r, r
		w.lives = append(w.lives, r)
		w.publishItself(r)
		w.note(0, "commit", name(r.Identity), "id "+r.ID+" "+r.key+" "+r.topic, entry)
	}
}

func (w *world) remove(rows []*row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rows {
		w.drop(r, "delete")
	}
	w.append(&entry{reason: "delete"})
}

// drop takes a row out of the table. Callers hold mu.
func (w *world) drop(r *row, why string) {
	if !r.gone {
		r.gone = true
		delete(w.table, r.in())
		w.note(0, why, name(r.Identity), "", 0)
	}
}

// truncate empties the first table and restarts its ids as soon as no transaction with rows is open. Callers hold mu.
func (w *world) truncate(number int) {
	if w.open > 0 {
		time.AfterFunc(5*time.Millisecond+time.Duration(number), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.truncate(number)
		})
		return
	}
	for _, r := range w.lives {
		if r.Table == tableName {
			w.drop(r, "truncate")
		}
	}
	w.nextID = 0
	w.append(&entry{reason: "TRUNCATE", deferred: []outbox.Deferred{{Table: tableName, Cause: outbox.CauseStatement}}})
}

// choose draws a row of the table that a condition holds for; nil when there is none. Callers hold mu.
func (w *world) choose(n uint64, fits func(*row) bool) *row {
	var list []*row
	for _, r := range w.lives {
		if !r.gone && !r.logOnly && !r.visible.After(time.Now()) && fits(r) {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[n%uint64(len(list))]
}

// chooseFinal draws a row that is SENT or FAILED, often the last one. Callers hold mu.
func (w *world) chooseFinal(n uint64) *row {
	var last *row
	r := w.choose(n, func(r *row) bool {
		final := r.status == outbox.Sent || r.status == outbox.Failed
		if final && (last == nil || r.final.After(last.final)) {
			last = r
		}
		return final
	})
	if n%3 > 0 {
		return last
	}
	return r
}

// operate carries out what a second writer does to a row or an operator to the service.
func (w *world) operate(o operation) {
	switch o.what {
	case doMoveTo, doTrigger:
		w.command(o)
		return
	case doReset:
		if o.row%4 > 0 {
			w.setBack(o)
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, down := covering(w.plan.database, w.at()); down {
		return
	}
	switch o.what {
	case doRotate:
		w.rotate()
	case doPurge:
		w.purge()
	case doFailover:
		w.failover()
	case doReplace:
		if o.row%3 == 0 {
			w.replace()
		}
	default:
		w.change(o)
	}
}

// change is what a second writer does to one row. Callers hold mu.
func (w *world) change(o operation) {
	pending := func(r *row) bool { return r.status == outbox.Pending }
	var r *row
	switch o.what {
	case doHold:
		if r = w.choose(o.row, pending); r != nil {
			r.status = outbox.Held
			time.AfterFunc(o.lasts, func() { w.release(r) })
		}
	case doMark:
		if r = w.choose(o.row, pending); r != nil {
			r.status, r.foreignSent = outbox.Sent, true
			w.arrived(r)
		}
	case doDelete:
		if r = w.choose(o.row, func(*row) bool { return true }); r != nil {
			w.drop(r, "delete")
		}
	case doReset:
		if r = w.chooseFinal(o.row); r != nil {
			r.resend()
			time.AfterFunc(time.Millisecond, func() { w.command(operation{what: doTrigger}) }) // who resets wants it now
		}
	case doEdit:
		if r = w.choose(o.row, pending); r != nil {
			r.version++
		}
	case doPostpone:
		if r = w.choose(o.row, pending); r != nil {
			r.due = time.Now().Add(2*time.Second + o.lasts)
		}
	}
	if o.what == doLock {
		if r = w.choose(o.row, func(r *row) bool { return r.status != outbox.Sent }); r != nil {
			r.locked = time.Now().Add(o.lasts)
			w.note(0, "second writer locks", name(r.Identity), "", 0)
		}
		return
	}
	if r != nil {
		r.touched = true
		w.note(0, "second writer", name(r.Identity), r.status.String(), int(o.what))
		w.append(&entry{reason: "update"})
	}
}

func (w *world) release(r *row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.gone && r.status == outbox.Held {
		r.status = outbox.Pending
		r.account.reset() // a completion that came meanwhile was not written
		if r.retries > 0 {
			w.loseInterest(r) // who wanted to take it away meanwhile has found it held
		}
		w.note(0, "second writer", name(r.Identity), "pending", 0)
		w.append(&entry{reason: "update"})
	}
}
