package keyorder

import (
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// WithoutUnread returns the rows that may be reserved: none of a table that is to be read.
func (o *Order) WithoutUnread(rows []outbox.Candidate) []outbox.Candidate {
	rest := make([]outbox.Candidate, 0, len(rows))
	for _, c := range rows {
		if t := o.tables[c.Table]; t == nil || t.reading == complete || !inOrder(&c) {
			rest = append(rest, c)
		}
	}
	return rest
}

// inOrder reports whether later rows of its key wait for a row: not without a key, and not for one that is final, whatever becomes of it.
func inOrder(c *outbox.Candidate) bool {
	return c.Key != "" && c.Status != outbox.Sent && c.Status != outbox.Failed
}

// Ahead takes the end of the log up to which the sweep or a timer continues though the log was not offered: rows that are not known may come
// before those that it finds.
func (o *Order) Ahead(end outbox.Position) {
	if o.ahead.Compare(end) < 0 {
		o.ahead = end
	}
}

// Reserved remembers rows that the sweep has reserved, before it reads them, because from now on the log's rows of their keys come behind
// them. offered is the end of the log that was offered. It returns those before which there are none but such rows, and the others, which are
// not to be published now.
func (o *Order) Reserved(reserved []outbox.Candidate, offered outbox.Position, now time.Time) (free, waiting []outbox.Candidate) {
	o.call++
	ahead := o.ahead.File != "" && offered.Compare(o.ahead) < 0
	for i := range reserved {
		c := &reserved[i]
		t := o.tables[c.Table]
		if t == nil || !inOrder(c) {
			continue
		}
		k := Key{c.Table, c.Topic, c.Key}
		if (ahead || t.deferred.unknown) && !o.complete(c.Identity, t) {
			if row := o.leave(k, c.Identity, nil, "found by the sweep", false, now); row != nil {
				o.sighted(row)
				row.inLog = false
			}
			t.again, o.wakes = true, true
			continue
		}
		if row := o.leave(k, c.Identity, tracker.Of(c.Entry), "found by the sweep", false, now); row != nil {
			o.sighted(row)
			row.call = o.call
		}
	}
	for _, c := range reserved {
		row := o.memory.rows[c.Identity]
		switch {
		case o.failedWaits(&c):
			waiting = append(waiting, c)
		case o.tables[c.Table] == nil || !inOrder(&c):
			free = append(free, c)
		case row != nil && o.goesWith(row):
			free = append(free, c)
		default:
			if row != nil {
				row.entry = nil
			}
			waiting = append(waiting, c)
		}
	}
	return free, waiting
}

// SetBack remembers rows that were FAILED and are PENDING now: the other rows of their keys come behind them, but for those that are FAILED. One
// that is FAILED still, or is gone, is forgotten when the table shows it.
func (o *Order) SetBack(rows []outbox.Candidate, now time.Time) {
	for i := range rows {
		c := &rows[i]
		if o.tables[c.Table] == nil || c.Key == "" {
			continue
		}
		if row := o.leave(Key{c.Table, c.Topic, c.Key}, c.Identity, nil, "it was FAILED, and is tried again", false, now); row != nil {
			row.setBack = true
		}
	}
}

// wasSetBack keeps over an attempt that a row was FAILED. row may be nil.
func (row *leftRow) wasSetBack(e *tracker.Entry) {
	if row != nil && e.Sends.SetBack {
		row.setBack = true
	}
}

// failedWaits reports whether a row stays FAILED for now: rows of its key wait, or may wait, that were not FAILED, or that were and come behind
// it. Set back to PENDING it comes before them. Where a key has several such rows, there would always be one that the others wait for: so each
// of them is tried once before the first is tried again.
func (m *memory) failedWaits(c *outbox.Candidate) bool {
	t := m.tables[c.Table]
	if t == nil || c.Status != outbox.Failed || c.Key == "" {
		return false
	}
	s := m.keys[Key{c.Table, c.Topic, c.Key}]
	return t.closed || s != nil && slices.ContainsFunc(s.left, func(row *leftRow) bool { return !row.setBack || before(c.ID, row.id.ID) })
}

// complete reports whether the rows before one are known, too: the log has shown it, or the table was read after it was found.
func (m *memory) complete(id outbox.Identity, t *tableState) bool {
	row := m.rows[id]
	return row != nil && (row.inLog || row.inTable && row.read < t.done)
}

// goesWith reports whether a row and all before it that are left were reserved in this call.
func (o *Order) goesWith(row *leftRow) bool {
	s := row.key
	if s.first != nil && s.first.Sends.Probes > 0 {
		return false
	}
	if s.call != o.call {
		s.call = o.call
		for _, one := range s.left {
			if one.call != o.call {
				break
			}
			one.goes = o.call
		}
	}
	return row.goes == o.call
}
