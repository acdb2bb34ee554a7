package keyorder

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// This file is for rows that the log shows and the reader does not bring: their columns could not be named, their transaction is too large or
// rewrites them. The reader reports their table and their position in the log, and neither id nor key. So the table must show them before
// anything that follows them in the log goes out.
//
// A server may write a transaction to the log before it shows the rows to other sessions. A reading of the table right after the report could
// miss them. But transactions become visible in the order of the log. A reading shows the rows for certain when it begins after the table has
// shown a row that follows them in the log, a witness. Until such a reading is complete, rows of the log are left to the sweep, and the sweep
// takes a row only if the table was read once more after it showed that row.

// deferredRows says what is known of the deferred rows of a table.
type deferredRows struct {
	reports uint64 // of the reader
	unknown bool   // some of the rows may not be known yet
	proof   int    // the reading that shows them when it is complete; 0: no row behind them was seen yet
}

// Deferred takes rows into account that the reader leaves to the sweep. It is called before later rows of the log are handed over, and before
// those of the same transaction. A table that is not ordered is skipped; no entry affects another.
func (m *memory) Deferred(list []outbox.Deferred) {
	for name, t := range m.tables {
		for _, one := range list {
			if one.Table == name || one.Table == "" { // "": it may be any table
				t.deferred.reports++
				t.deferred.unknown, t.deferred.proof = true, 0
				t.again, m.wakes = true, true
			}
		}
	}
}

// follows marks a row of the log that is left while deferred rows before it are not known: it may be the witness. A row that is looked up first
// comes here when it is taken over and again when it is left. What was reported in between is behind it, so the reports before it are those of
// the first time.
func (m *memory) follows(e *tracker.Entry) {
	t, row := m.tables[e.Row().Table], m.rows[e.Row()]
	if t == nil || !e.Logged() {
		return
	}
	if e.Sends.Reports == 0 {
		e.Sends.Reports = 1 + t.deferred.reports
	}
	if row == nil || !t.deferred.unknown {
		return
	}
	row.follows = e.Sends.Reports - 1
	row.inLog = row.follows == 0
	if t.deferred.proof == 0 {
		t.again, m.wakes = true, true
	}
}

// sighted notes that the table has shown a row. The rows before it are known when a reading is complete that begins from now on.
func (m *memory) sighted(row *leftRow) {
	if row.inTable {
		return
	}
	t := m.tables[row.key.Table]
	row.inTable, row.read = true, t.begun
	if t.deferred.unknown && t.deferred.proof == 0 && row.follows == t.deferred.reports {
		t.deferred.proof = t.begun + 1
		t.again, m.wakes = true, true
	}
}

// proven forgets deferred rows when a reading that shows them is complete. A closed table needs none: only the first rows of each key
// go out that its reading has shown, and no others.
func (m *memory) proven(t *tableState, now time.Time) {
	if d := &t.deferred; !d.unknown || !t.closed && (d.proof == 0 || t.done < d.proof) {
		return
	}
	t.deferred.unknown, t.deferred.proof = false, 0
	for _, s := range m.waiting {
		if m.tables[s.Table] != t {
			continue
		}
		for _, row := range s.left {
			if row.follows > 0 {
				row.follows, row.inLog = 0, true
				s.lookNow(now)
			}
		}
	}
}
