package dispatch

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// This file is for rows that the log shows and the reader does not bring: their columns could not be named, their transaction is too large or
// rewrites them. The reader reports their table and their place in the log, and neither id nor key. So the table must show them before
// anything that follows them in the log goes out.
//
// A server may write a transaction to the log before it shows the rows to other sessions. A reading of the table right after the report could
// miss them. But transactions become visible in the order of the log. A reading shows the rows for certain when it begins after the table has
// shown a row that follows them in the log, a witness. Until such a reading is complete, rows of the log are left to the sweep, and the sweep
// takes a row only if the table was read once more after it showed that row.

// Deferred takes rows into account that the reader leaves to the sweep. It is called before later rows of the log are handed over, and before
// those of the same transaction. A table that is not ordered is skipped; no entry affects another.
func (d *Dispatch) Deferred(list []outbox.Deferred) {
	if len(d.gate.tables) == 0 || len(list) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, t := range d.gate.tables {
		for _, one := range list {
			if one.Table == name || one.Table == "" { // "": it may be any table
				t.missed++
				t.missing, t.proof = true, 0
				t.again = true
			}
		}
	}
	d.gate.kick()
}

// unproven marks a row of the log that is left while deferred rows before it are not known: it may be the witness. A row that is looked up first
// comes here when it is taken over and again when it is left. What was reported in between is behind it, so its place is that of the first time.
// Callers hold mu.
func (o *order) unproven(e *tracker.Entry) {
	t, row := o.tables[e.Row().Table], o.rows[e.Row()]
	if t == nil || !e.Logged() {
		return
	}
	if e.Sends.Place == 0 {
		e.Sends.Place = 1 + t.missed
	}
	if row == nil || !t.missing {
		return
	}
	row.follows = e.Sends.Place - 1
	row.shown = row.follows == 0
	if t.proof == 0 {
		t.again = true
		o.kick()
	}
}

// sighted notes that the table has shown a row. The rows before it are known when a reading is complete that begins from now on.
func (o *order) sighted(row *leftRow) {
	if row.seen {
		return
	}
	t := o.tables[row.lane.table]
	row.seen, row.read = true, t.begun
	if t.missing && t.proof == 0 && row.follows == t.missed {
		t.proof, t.again = t.begun+1, true
		o.kick()
	}
}

// proven ends the care about deferred rows when a reading that shows them is complete. A closed table needs none: of each key the first rows
// that the reading of its turn has shown go out, and no others. Callers hold mu.
func (o *order) proven(t *orderedTable, now time.Time) {
	if !t.missing || !t.closed && (t.proof == 0 || t.done < t.proof) {
		return
	}
	t.missing, t.proof = false, 0
	for _, l := range o.waiting {
		if o.tables[l.table] != t {
			continue
		}
		for _, row := range l.left {
			if row.follows > 0 {
				row.follows, row.shown = 0, true
				l.look, l.looks = now, 0
			}
		}
	}
}

// leaveFresh leaves a row to the sweep that the gate has not let pass. Callers hold mu.
func (d *Dispatch) leaveFresh(e *tracker.Entry, cause outbox.Cause) (outbox.Completion, bool) {
	c, ok := d.deferRow(e, cause)
	d.gate.unproven(e)
	return c, ok
}

// mayGoAgain asks the gate once more for a row in hand that goes to the sink another time: since the first time a reading of the table may have
// shown an earlier row. If it may not go, it is left to the sweep with those behind it. Callers hold mu.
func (d *Dispatch) mayGoAgain(e *tracker.Entry) bool {
	k, ordered := d.gate.keyOf(e.Message)
	if !ordered || d.mayFollow(d.gate.keys[k], e) {
		return true
	}
	if c, ok := d.deferRow(e, outbox.CauseOrder); ok {
		d.gate.released = append(d.gate.released, c)
	}
	return false
}

// mayFollow reports whether a row that the gate has let pass before still comes first of its key: no reading of the table is due that could
// show an earlier one, and none has. Callers hold mu.
func (d *Dispatch) mayFollow(l *lane, e *tracker.Entry) bool {
	return l != nil && !d.gate.tables[l.table].unread && (len(l.left) == 0 || before(e.Row().ID, l.left[0].id.ID))
}
