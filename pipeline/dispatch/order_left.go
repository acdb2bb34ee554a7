package dispatch

import (
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// This file remembers the rows that are left of each key.

// leave remembers a row that is not final. Above the limit the table is closed instead; a row with others behind it that are remembered, or in
// hand, is remembered all the same, because they must not overtake it. Callers hold mu.
func (o *order) leave(k rowKey, id outbox.Identity, e *tracker.Entry, why string, first bool) *leftRow {
	t := o.tables[k.table]
	if known := o.rows[id]; known != nil {
		if known.lane.rowKey == k {
			known.entry, known.why = e, why
			known.shown = known.follows == 0
			return known
		}
		o.forget(known)
	}
	if o.full(t) {
		t.close(time.Now())
		o.kick()
	}
	if t.closed && !first && !o.keys[k].holds(id.ID) {
		return nil
	}
	row := o.insert(k, id, e, why)
	row.shown = true
	return row
}

// holds reports whether a row that is behind another one is remembered, or in hand and may have to be remembered. Primary keys need not grow,
// so this is not only for those that were committed later. l may be nil.
func (l *lane) holds(id string) bool {
	if l == nil {
		return false
	}
	if len(l.left) > 0 && before(id, l.left[len(l.left)-1].id.ID) {
		return true
	}
	for e := l.first; e != nil; e = e.Sends.Behind {
		if before(id, e.Row().ID) {
			return true
		}
	}
	return false
}

// insert puts a row among those that are left of its key. The texts are copied: they may be parts of a message.
func (o *order) insert(k rowKey, id outbox.Identity, e *tracker.Entry, why string) *leftRow {
	l := o.keys[k]
	if l == nil {
		l = o.lane(rowKey{k.table, strings.Clone(k.topic), strings.Clone(k.key)})
	}
	row := &leftRow{id: outbox.Identity{Table: id.Table, ID: strings.Clone(id.ID), MessageID: strings.Clone(id.MessageID)}, lane: l, entry: e, since: time.Now(), why: why}
	if len(l.left) == 0 {
		l.place = len(o.waiting)
		o.waiting = append(o.waiting, l)
		o.kick()
	}
	at := len(l.left)
	if at > 0 && before(row.id.ID, l.left[at-1].id.ID) {
		at, _ = slices.BinarySearchFunc(l.left, row.id.ID, compareRow)
	}
	if at == 0 {
		l.look, l.looks = row.since, 0
	}
	l.left = slices.Insert(l.left, at, row)
	o.rows[row.id] = row
	t := o.tables[k.table]
	t.rows++
	row.read = t.begun
	return row
}

// full reports whether there is no room for a row of a table. Each table may have a part, whatever the others have.
func (o *order) full(t *orderedTable) bool {
	return len(o.rows) >= o.limit && t.rows > o.limit/(2*len(o.tables))
}

// forget ends the wait for a row: it is final, in hand, or nobody's to wait for.
func (o *order) forget(row *leftRow) {
	l := row.lane
	if l.left[0] == row {
		l.left[0] = nil
		l.left = l.left[1:]
		l.look, l.looks = time.Now(), 0
	} else {
		at := slices.Index(l.left, row)
		l.left = slices.Delete(l.left, at, at+1)
	}
	o.forgotten(row)
	o.tidy(l)
}

func (o *order) forgotten(row *leftRow) {
	t := o.tables[row.lane.table]
	t.rows--
	t.moved = time.Now()
	delete(o.rows, row.id)
}

// forgetTable forgets the rows of a table that are on nobody's way.
func (o *order) forgetTable(t *orderedTable, owned func(*tracker.Entry) bool) {
	for _, l := range slices.Clone(o.waiting) {
		if o.tables[l.table] != t {
			continue
		}
		l.left = slices.DeleteFunc(l.left, func(row *leftRow) bool {
			if row.entry != nil && owned(row.entry) {
				return false
			}
			o.forgotten(row)
			return true
		})
		l.look, l.looks = time.Time{}, 0
		o.tidy(l)
	}
}

// tidy takes a lane from which rows were forgotten out of where it is not needed any more.
func (o *order) tidy(l *lane) {
	if len(l.left) > 0 {
		return
	}
	last := o.waiting[len(o.waiting)-1]
	o.waiting[l.place], last.place = last, l.place
	o.waiting[len(o.waiting)-1] = nil
	o.waiting = o.waiting[:len(o.waiting)-1]
	l.left = nil
	o.release(l)
}

// before compares primary keys in the form of text: numbers by value, anything else byte by byte.
func before(a, b string) bool { return compareKeys(a, b) < 0 }

func compareRow(row *leftRow, id string) int { return compareKeys(row.id.ID, id) }

func compareKeys(a, b string) int {
	negative := strings.HasPrefix(a, "-")
	switch {
	case negative != strings.HasPrefix(b, "-"):
		if negative {
			return -1
		}
		return 1
	case negative:
		return compareKeys(b[1:], a[1:])
	case len(a) != len(b) && digits(a) && digits(b):
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func digits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}
