package keyorder

import (
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const (
	lookRows   = 500              // rows that are looked at in one query
	lookKeys   = 5000             // keys that are considered in one call
	dueGroup   = 100              // rows of a key that are announced together
	lateCommit = 15 * time.Second // a row that is not found may not be visible yet
	headLook   = 12 * time.Second // the row that a key waits for is looked at so often at least: it may be deleted, held or marked as sent
)

// lookPauses are between looks at a row that should go out soon.
var lookPauses = outbox.Backoff{Base: 250 * time.Millisecond, Max: headLook}

// Due is a row that the sweep is to publish after a while.
type Due struct {
	ID outbox.Identity
	In time.Duration
}

// Actions are what is to be done after a look at the table.
type Actions struct {
	Again bool // look at once more: the next rows of keys are first now
	Sweep bool // the sweep finds out when the log does not show a row any more
	Due   []Due
}

// ToLook returns the first rows of keys that are to be looked at now, because they have no owner. idle reports whether nothing of a topic goes, or a
// table is not to be asked.
func (o *Order) ToLook(now time.Time, owners Owners, idle func(table, topic string) bool) (ids []outbox.Identity) {
	waiting := o.memory.waiting
	for range min(len(waiting), lookKeys) {
		if len(ids) == lookRows {
			break
		}
		if o.next++; o.next >= len(waiting) {
			o.next = 0
		}
		s := waiting[o.next]
		row := s.left[0]
		switch {
		case s.first != nil || idle(s.Table, s.Topic) || o.tables[s.Table].reading != complete:
			continue
		case row.entry != nil && owners.Has(row.entry):
			continue
		case row.entry != nil: // its completion was written, or it was released
			row.entry = nil
			s.lookNow(now)
		}
		if now.Before(s.look) {
			continue
		}
		s.look = now.Add(lookPauses.Delay(s.looks, 0.5))
		s.looks++
		ids = append(ids, row.id)
	}
	return ids
}

// Looked takes what the table says of rows that ToLook has returned; those that are missing in found do not exist. No row affects another.
func (o *Order) Looked(ids []outbox.Identity, found []outbox.Candidate, now time.Time) (act Actions) {
	states := make(map[outbox.Identity]*outbox.Candidate, len(found))
	for i := range found {
		states[found[i].Identity] = &found[i]
	}
	for _, id := range ids {
		o.looked(id, states[id], now, &act)
	}
	return act
}

// looked takes what the table says of a row that its key waits for; nil when it does not exist.
func (o *Order) looked(id outbox.Identity, c *outbox.Candidate, now time.Time, act *Actions) {
	row := o.memory.rows[id]
	if row == nil || row.entry != nil || row.key.first != nil || row.key.left[0] != row {
		return // it changed meanwhile
	}
	s := row.key
	known := row.inTable
	if c != nil {
		o.sighted(row)
	}
	switch {
	case c == nil && !known && now.Sub(row.since) < lateCommit:
	case c == nil, c.Status != outbox.Pending && c.Status != outbox.Sending, c.Postponed():
		act.Again = act.Again || len(s.left) > 1
		o.forget(row, now)
	case c.Waiting:
		wait := time.Duration(c.DueInMilli) * time.Millisecond
		s.look = now.Add(min(wait+time.Second, headLook))
		if row.inLog { // else a look ahead finds it, with its position in the log
			act.Due = append(act.Due, Due{id, wait})
		}
	case c.Status == outbox.Pending && !row.inLog:
		act.Sweep = true
	case c.Status == outbox.Pending:
		for _, one := range s.left[:min(len(s.left), dueGroup)] { // those behind it may follow it at once
			if !one.inLog {
				break
			}
			act.Due = append(act.Due, Due{one.id, 0})
		}
	}
}

// WaitingKey is a key that waits for a row of its own.
type WaitingKey struct {
	Table, Topic, Key string
	MessageID         string // of the row that it waits for
	Reason            string // why that was not sent
	Since             time.Time
	Rows              int // that are remembered, with that one
}

// Waiting counts the keys that wait and the rows that are remembered.
func (m *memory) Waiting() (keys, rows int) { return len(m.waiting), len(m.rows) }

// WaitingKeys returns the keys that wait longest, at most n.
func (m *memory) WaitingKeys(n int) (list []WaitingKey) {
	var first []*keyState
	for _, s := range m.waiting {
		at := len(first)
		for at > 0 && s.left[0].since.Before(first[at-1].left[0].since) {
			at--
		}
		if at < n {
			first = slices.Insert(first[:min(len(first), n-1)], at, s)
		}
	}
	for _, s := range first {
		row := s.left[0]
		list = append(list, WaitingKey{
			Table: s.Table, Topic: s.Topic, Key: s.Key.Key, MessageID: row.id.MessageID, Reason: row.why, Since: row.since, Rows: len(s.left),
		})
	}
	return list
}

// WaitsFor returns the earlier row of its key that a row waits for, and why that one is not final; false when it waits for none, or is not known.
func (m *memory) WaitsFor(id outbox.Identity) (first outbox.Identity, why string, waits bool) {
	left := m.rows[id]
	switch {
	case left == nil:
		return first, "", false
	case left.key.left[0] != left:
		earlier := left.key.left[0]
		return earlier.id, earlier.why, true
	case left.key.first != nil && left.key.first.Row() != id:
		return left.key.first.Row(), "which is being sent to the broker", true
	}
	return first, "", false
}
