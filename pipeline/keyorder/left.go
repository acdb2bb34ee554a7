package keyorder

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// leave remembers a row that is not final. Above the limit the table is closed instead; a row with others behind it that are remembered, or in
// memory, is remembered all the same, because they must not overtake it.
func (o *Order) leave(k Key, id outbox.Identity, e *tracker.Entry, why string, first bool, now time.Time) *leftRow {
	t := o.tables[k.Table]
	if known := o.memory.rows[id]; known != nil {
		if known.key.Key == k {
			known.entry, known.why = e, why
			known.inLog = known.follows == 0
			return known
		}
		o.forget(known, now)
	}
	if o.full(t) {
		t.close(now)
		o.wakes = true
	}
	if t.closed && !first && !o.memory.keys[k].holds(id.ID) {
		return nil
	}
	row := o.remember(k, id, e, why, now)
	row.inLog = true
	return row
}

// remember puts a row among those that are left of its key.
func (o *Order) remember(k Key, id outbox.Identity, e *tracker.Entry, why string, now time.Time) *leftRow {
	row, waits := o.memory.insert(k, id, e, why, now)
	o.wakes = o.wakes || waits
	t := o.tables[k.Table]
	t.rows++
	row.read = t.begun
	return row
}

// full reports whether there is no room for a row of a table. Each table may have a part, whatever the others have.
func (o *Order) full(t *tableState) bool {
	return len(o.memory.rows) >= o.limits.Rows && t.rows > o.limits.Rows/(2*len(o.tables))
}

// forget ends the wait for a row: it is final, in memory, or not to be waited for.
func (o *Order) forget(row *leftRow, now time.Time) {
	t := o.tables[row.key.Table]
	t.rows--
	t.moved = now
	o.memory.remove(row, now)
}
