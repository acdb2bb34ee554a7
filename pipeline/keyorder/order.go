package keyorder

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// Limits bound what is remembered and what is in memory behind first rows. Each is at least 1.
type Limits struct {
	Rows      int           // that are remembered because they, or earlier ones of their keys, are not final
	Behind    int           // behind the first row of one key, of rows of the log
	AllBehind tracker.Limit // of all keys
}

// Key names what the order is kept of.
type Key struct{ Table, Topic, Key string }

// Owners shows which rows have an owner. tracker.Tracker implements it.
type Owners interface {
	Has(*tracker.Entry) bool
	Owner(outbox.Identity) *tracker.Entry
}

// Decision is what is to happen to a row that is to go to the sink.
type Decision uint8

const (
	Send  Decision = iota // at once
	Hold                  // it stays in memory behind the first row of its key: Sent returns it
	Leave                 // to the sweep: an earlier row of its key is not final, or may exist
)

// Order is the state of the keys of some tables. Make it with New.
type Order struct {
	memory
	limits Limits
	behind tracker.Window
	call   uint64          // of Reserved
	next   int             // in memory.waiting: the key to look at next
	ahead  outbox.Position // up to which a sweep has gone before the log
}

// New makes the order of tables (schema.table). Nothing of a table goes before it was read.
func New(limits Limits, tables []string) *Order {
	limits.Rows, limits.Behind = max(1, limits.Rows), max(1, limits.Behind)
	o := &Order{limits: limits, memory: newMemory(limits.Rows)}
	for _, name := range tables {
		o.tables[name] = &tableState{reading: notRead}
	}
	return o
}

// Empty reports whether no table keeps the order of its keys.
func (m *memory) Empty() bool { return len(m.tables) == 0 }

// Behind is the window of the rows in memory behind the first one of their key.
func (o *Order) Behind() tracker.Window { return o.behind }

// Wakes reports once whether a look or a reading is due earlier than the caller expects.
func (m *memory) Wakes() bool {
	wakes := m.wakes
	m.wakes = false
	return wakes
}

// Busy reports whether keys wait or tables are to be read.
func (m *memory) Busy() bool {
	for _, t := range m.tables {
		if t.reading != complete || t.again || t.closed {
			return true
		}
	}
	return len(m.waiting) > 0
}

// Whole reports whether every row that waits is known. While it is not, rows are left to the sweep, which publishes some of them at a time.
func (m *memory) Whole() bool {
	for _, t := range m.tables {
		if t.reading != complete || t.closed {
			return false
		}
	}
	return true
}

// keyOf returns the key of a message; false when its order is not kept: by its table, without a key, or when the broker delivers it later.
func (o *Order) keyOf(m *outbox.Message) (Key, bool) {
	if len(o.tables) == 0 || m.LogOnly || m.Path == outbox.PathRedelivery || // a row that is sent again was in the order when it was sent first
		m.ShardingKey == "" || m.Later || o.tables[m.Table] == nil {
		return Key{}, false
	}
	return Key{m.Table, m.Topic, m.ShardingKey}, true
}

// Come decides on a row that is to go to the sink. A row that is left is remembered.
func (o *Order) Come(e *tracker.Entry, now time.Time) Decision {
	k, ordered := o.keyOf(e.Message)
	if !ordered {
		return Send
	}
	s, left := o.memory.keys[k], o.memory.rows[e.Row()]
	if left != nil && left.key != s { // its key was changed in the table
		o.forget(left, now)
		s, left = o.memory.keys[k], nil
	}
	if !o.mayGo(o.tables[k.Table], s, left, e) {
		o.Skip(e, whyBehind, now)
		return Leave
	}
	if s == nil {
		s = o.memory.key(k)
	}
	first := s.first == nil
	s.add(e)
	if !first {
		o.behind.Add(e)
	}
	if left != nil {
		e.Sends.SetBack = left.setBack
		o.forget(left, now) // the key stays, because the row is in memory
	}
	if !first {
		return Hold
	}
	return Send
}

// mayGo reports whether every row of the key before this one is final or in memory before it. s and left are nil if there are none.
func (o *Order) mayGo(t *tableState, s *keyState, left *leftRow, e *tracker.Entry) bool {
	switch {
	case t.reading != complete || t.closed && left == nil || t.deferred.unknown && !e.Swept(): // earlier rows may exist that are not known
		return false
	case s == nil:
		return true
	case s.first != nil && s.first.Sends.Probes > 0: // it may stay in memory for minutes
		return false
	case left != nil && s.left[0] != left, left == nil && len(s.left) > 0 && !before(e.Row().ID, s.left[0].id.ID):
		return false
	case s.first == nil || e.Swept(): // sweeps take no more than their share
		return true
	}
	return s.behind < o.limits.Behind && o.limits.AllBehind.Room(o.behind, outbox.PathBinlog)
}

// Again decides on a row in memory that goes to the sink another time: since the first time a reading of the table may have shown an earlier
// row, or a sweep may have brought one, which waits behind it. If it may not go, the caller leaves it to the sweep by Unsent.
func (o *Order) Again(e *tracker.Entry) bool {
	k, ordered := o.keyOf(e.Message)
	if !ordered {
		return true
	}
	for one := e.Sends.Behind; one != nil; one = one.Sends.Behind {
		if one.Swept() && before(one.Row().ID, e.Row().ID) {
			return false
		}
	}
	return o.mayFollow(o.memory.keys[k], e)
}

// mayFollow reports whether a row that Come has let pass still comes first of its key: no reading of the table is due that could show an
// earlier one, and none has.
func (o *Order) mayFollow(s *keyState, e *tracker.Entry) bool {
	return s != nil && o.tables[s.Table].reading == complete && (len(s.left) == 0 || before(e.Row().ID, s.left[0].id.ID))
}

// Sent takes a row that the broker has. It returns the row that is to be sent now, or the rows that are to be left to the sweep.
func (o *Order) Sent(e *tracker.Entry, now time.Time) (next *tracker.Entry, leave []*tracker.Entry) {
	k, ordered := o.keyOf(e.Message)
	if !ordered {
		return nil, nil
	}
	s := o.memory.keys[k]
	if s == nil || s.first != e {
		return nil, nil
	}
	next = s.unchain()
	switch {
	case next != nil && !o.mayFollow(s, next): // an earlier row was found meanwhile, or may exist
		return nil, o.leaveBehind(s, next, now)
	case next != nil:
		s.behind--
		o.behind.Remove(next)
		s.first = next
		return next, nil
	case len(s.left) > 0:
		s.lookNow(now)
		o.wakes = true
	}
	s.last = nil
	o.memory.release(s)
	return nil, nil
}

// Unsent makes the key of a row wait that is not at the sink and was not sent. writes is its entry while a completion is being written to the table,
// nil when the row has no owner any more. It returns the rows behind it, which are to be left to the sweep. The entry must have its message.
func (o *Order) Unsent(e, writes *tracker.Entry, why string, now time.Time) (behind []*tracker.Entry) {
	k, ordered := o.keyOf(e.Message)
	if !ordered {
		return nil
	}
	s := o.memory.keys[k]
	if s == nil || s.first != e {
		o.leave(k, e.Row(), writes, why, false, now).wasSetBack(e)
		return nil
	}
	next := s.unchain()
	o.leave(k, e.Row(), writes, why, true, now).wasSetBack(e)
	return o.leaveBehind(s, next, now)
}

// Probe takes a first row that stays in memory for a while, as the probe of a part that is away. It returns the rows behind it, which are to be
// left to the sweep.
func (o *Order) Probe(e *tracker.Entry, now time.Time) (behind []*tracker.Entry) {
	k, ordered := o.keyOf(e.Message)
	if !ordered {
		return nil
	}
	if s := o.memory.keys[k]; s != nil && s.first == e {
		return o.leaveBehind(s, e.Sends.Behind, now)
	}
	return nil
}

// Skip leaves a row to the sweep that comes and is not sent.
func (o *Order) Skip(e *tracker.Entry, why string, now time.Time) {
	if k, ordered := o.keyOf(e.Message); ordered {
		o.leave(k, e.Row(), writer(e), why, false, now)
		o.follows(e)
	}
}

// Expect takes a row of the log that comes when it was looked up: what a sweep finds of its key comes behind it.
func (o *Order) Expect(e *tracker.Entry, now time.Time) {
	if k, ordered := o.keyOf(e.Message); ordered {
		o.leave(k, e.Row(), e, "looked up after a start or a new connection", false, now)
		o.follows(e)
	}
}

// Final forgets a row that the table shows as final.
func (o *Order) Final(id outbox.Identity, now time.Time) {
	if row := o.memory.rows[id]; row != nil {
		o.forget(row, now)
	}
}

const whyBehind = "it waited for an earlier row, and is next"

// writer returns the entry of a row that is left, if its claim is given back by a completion first.
func writer(e *tracker.Entry) *tracker.Entry {
	if e.Message.Claim == "" {
		return nil
	}
	return e
}

// leaveBehind leaves the rows from next on to the sweep, which were behind one that is not sent soon.
func (o *Order) leaveBehind(s *keyState, next *tracker.Entry, now time.Time) (rows []*tracker.Entry) {
	if s.behind, s.last = 0, s.first; s.first != nil {
		s.first.Sends.Behind = nil
	}
	for next != nil {
		e := next
		next, e.Sends.Behind, e.Sends.Queued = e.Sends.Behind, nil, false
		o.behind.Remove(e)
		// In any case, also above the limit: a reading that has begun may have passed it because it was in memory, and a sweep finds it only when
		// its claim is given back, which may be after those of later rows.
		o.leave(s.Key, e.Row(), writer(e), whyBehind, true, now).wasSetBack(e)
		rows = append(rows, e)
	}
	o.memory.release(s) // when nothing was remembered
	return rows
}
