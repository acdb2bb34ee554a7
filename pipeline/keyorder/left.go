package keyorder

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// leave remembers a row that is not final. Above the limit the table is closed instead; a row that was held in memory, or that has others behind
// it that are remembered or in memory, is remembered all the same, because they must not overtake it.
func (m *memory) leave(k Key, id outbox.Identity, e *tracker.Entry, why string, held bool, now time.Time) *leftRow {
	t := m.tables[k.Table]
	if known := m.rows[id]; known != nil {
		if known.key.Key == k {
			known.entry, known.why = e, why
			known.inLog = known.follows == 0
			return known
		}
		m.forget(known, now)
	}
	if m.full(t) {
		t.close(now)
		m.wakes = true
	}
	if t.closed && !held && !m.keys[k].holds(id.ID) {
		return nil
	}
	row := m.remember(k, id, e, why, now)
	row.inLog = true
	return row
}

// remember puts a row among those that are left of its key.
func (m *memory) remember(k Key, id outbox.Identity, e *tracker.Entry, why string, now time.Time) *leftRow {
	row, waits := m.insert(k, id, e, why, now)
	m.wakes = m.wakes || waits
	t := m.tables[k.Table]
	t.rows++
	row.read = t.begun
	return row
}

// full reports whether there is no room for a row of a table. Each table may have a part, whatever the others have.
func (m *memory) full(t *tableState) bool {
	return len(m.rows) >= m.limit && t.rows > m.limit/(2*len(m.tables))
}

// forget ends the wait for a row: it is final, in memory, or not to be waited for.
func (m *memory) forget(row *leftRow, now time.Time) {
	t := m.tables[row.key.Table]
	t.rows--
	t.moved = now
	m.remove(row, now)
}
