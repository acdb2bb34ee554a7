package dispatch

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// This file is the gate of the tables with `ordering: key`. A key is one of a table and a topic. One row of a key is in the sink's hands
// at a time: no sink keeps later messages back when an earlier one fails. Rows that come meanwhile stay in memory behind it and follow
// when it is sent. When it is not sent, the key waits: what is behind it and what comes later is left to the sweep and remembered by
// identity. From then on the rows go out in the order of their primary keys, each when all before it are final.

const (
	defaultMaxWaiting = 100_000
	behindShare       = 8 // of what may be in flight, the part that one key may have behind its first row; all keys together have half
)

// rowKey names what the order is kept of.
type rowKey struct{ table, topic, key string }

// lane is a key with a row in hand, or with rows that wait.
type lane struct {
	rowKey
	first, last *tracker.Entry // in hand: the first is the sink's, in the retry buffer or a scout; those behind it wait for it
	behind      int            // rows behind the first
	left        []*leftRow     // rows that are not final and not in hand, in the order of their primary keys; those of a wait
	place       int            // in order.waiting, while rows are left
	look        time.Time      // when to look at the first of them in the table
	looks       int            // since the first changed
	round       uint64         // of reserve
}

// leftRow is a row that the table has, that is not final, and whom the later rows of its key wait for.
type leftRow struct {
	id      outbox.Identity
	lane    *lane
	entry   *tracker.Entry // whose way it is on, as long as the registry has it: its completion, or a sweep that has reserved it
	since   time.Time
	why     string
	seen    bool   // the table has shown it
	shown   bool   // the log has, or never will
	follows uint64 // it comes behind so many reports of deferred rows that are not known yet, see order_deferred.go; 0: behind none
	round   uint64 // of the last reserve that met it
	read    int    // readings of the table that had begun when it was inserted
	goes    uint64 // of the last one that took it
}

// order is the state of the gate; it belongs to Dispatch.mu.
type order struct {
	tables  map[string]*orderedTable
	keys    map[rowKey]*lane
	rows    map[outbox.Identity]*leftRow
	limit   int     // of rows
	waiting []*lane // with rows left, in no order
	next    int     // in waiting: whom to look at next
	round   uint64
	spare   []*lane
	wake    chan struct{}   // buffered 1: keepOrder has something to do
	blind   outbox.Position // up to which a sweep has gone before the log

	// For whoever holds mu, to be handed on when it is released.
	released []outbox.Completion // of rows that were left to the sweep
	ready    []*outbox.Message   // that follow
}

func newOrder(cfg *Config) *order {
	o := &order{
		tables: map[string]*orderedTable{}, keys: map[rowKey]*lane{}, rows: map[outbox.Identity]*leftRow{}, limit: cfg.MaxWaiting, wake: make(chan struct{}, 1),
	}
	if o.limit <= 0 {
		o.limit = defaultMaxWaiting
	}
	for _, name := range cfg.Ordered {
		o.tables[name] = &orderedTable{unread: true}
	}
	return o
}

// keyOf returns the key of a message; false when its order is not kept: by its table, without a key, or when the broker delivers it later.
func (o *order) keyOf(m *outbox.Message) (rowKey, bool) {
	if len(o.tables) == 0 || m.LogOnly || m.Path == outbox.PathRedelivery || // whose turn was when it was sent
		m.ShardingKey == "" || m.Later || o.tables[m.Table] == nil {
		return rowKey{}, false
	}
	return rowKey{m.Table, m.Topic, m.ShardingKey}, true
}

// laneOf returns the lane of a message in hand; nil when its order is not kept.
func (o *order) laneOf(m *outbox.Message) *lane {
	k, ordered := o.keyOf(m)
	if !ordered {
		return nil
	}
	return o.keys[k]
}

// pass decides on a row that is to go to the sink. It reports whether it may go at once. Else it stays in hand behind the row of its key
// that is there, or, if an earlier one is not final, it is left to the sweep. Callers hold mu.
func (d *Dispatch) pass(e *tracker.Entry) (now bool) {
	o := d.gate
	k, ordered := o.keyOf(e.Message)
	if !ordered {
		return true
	}
	l, left := o.keys[k], o.rows[e.Row()]
	if left != nil && left.lane != l { // somebody has changed its key
		o.forget(left)
		l, left = o.keys[k], nil
	}
	if !d.mayGo(o.tables[k.table], l, left, e) {
		if c, ok := d.leaveFresh(e, outbox.CauseOrder); ok {
			o.released = append(o.released, c)
		}
		return false
	}
	if l == nil {
		l = o.lane(k)
	}
	first := l.first == nil
	l.add(e)
	if !first {
		d.putBehind(e, 1)
	}
	if left != nil {
		o.forget(left) // the lane stays, because the row is in hand
	}
	return first
}

// add puts a row behind the others in hand. One that a sweep brings comes behind the last with a lesser primary key: the table may have shown it
// late, and those behind it are then later rows of the log.
func (l *lane) add(e *tracker.Entry) {
	e.Sends.InLane = true
	if l.first == nil {
		l.first, l.last = e, e
		return
	}
	l.behind++
	at := l.last
	if e.Swept() && before(e.Row().ID, at.Row().ID) {
		at = l.first
		for one := l.first.Sends.Behind; one != nil; one = one.Sends.Behind {
			if before(one.Row().ID, e.Row().ID) {
				at = one
			}
		}
	}
	e.Sends.Behind, at.Sends.Behind = at.Sends.Behind, e
	if at == l.last {
		l.last = e
	}
}

// mayGo reports whether every row of the key before this one is final or in hand. l and left are nil if there are none. Callers hold mu.
func (d *Dispatch) mayGo(t *orderedTable, l *lane, left *leftRow, e *tracker.Entry) bool {
	switch {
	case t.unread || t.closed && left == nil || t.missing && !e.Swept(): // there may be earlier rows that are not known
		return false
	case l == nil:
		return true
	case l.first != nil && l.first.Sends.Scout > 0: // it may stay in hand for minutes
		return false
	case left != nil && l.left[0] != left, left == nil && len(l.left) > 0 && !before(e.Row().ID, l.left[0].id.ID):
		return false
	case l.first == nil || e.Swept(): // sweeps take no more than their share
		return true
	}
	return l.behind < max(1, d.cfg.MaxInFlight/behindShare) && d.behind < max(1, d.cfg.MaxInFlight/2) && d.behindB < max(1, d.cfg.MaxInFlightBytes/2)
}

// putBehind counts a row, with n = -1 out again, that is in hand and not the sink's. Callers hold mu.
func (d *Dispatch) putBehind(e *tracker.Entry, n int) {
	d.behind += n
	d.behindB += n * e.Size
	if e.Swept() {
		d.sweptFlight += n
	}
}

// sent lets the row follow that is behind one that was sent. Callers hold mu.
func (d *Dispatch) sent(l *lane, e *tracker.Entry, now time.Time) {
	if l == nil || l.first != e {
		return
	}
	next := d.unchain(l)
	switch {
	case next != nil && !d.mayFollow(l, next): // one before it was found meanwhile, or may be
		d.leaveBehind(l, next)
		return
	case next != nil:
		l.behind--
		d.putBehind(next, -1)
		l.first = next
		d.gate.ready = append(d.gate.ready, d.launch(next, now))
		return
	case len(l.left) > 0:
		l.look, l.looks = now, 0
		d.gate.kick()
	}
	l.last = nil
	d.gate.release(l)
}

// unchain takes the first row of a lane out and returns the one behind it.
func (d *Dispatch) unchain(l *lane) (next *tracker.Entry) {
	next, l.first.Sends.Behind, l.first.Sends.InLane, l.first = l.first.Sends.Behind, nil, false, nil
	return next
}

// unfinished makes the key of a row wait that is in the sink's hands no more and was not sent. own is its entry while a completion is on
// its way to the table, nil when nobody has it any more. Callers hold mu, and have not completed it.
func (d *Dispatch) unfinished(e, own *tracker.Entry, why string) {
	o := d.gate
	k, ordered := o.keyOf(e.Message)
	if !ordered {
		return
	}
	l := o.keys[k]
	first := l != nil && l.first == e
	if first {
		next := d.unchain(l)
		defer d.leaveBehind(l, next)
	}
	o.leave(k, e.Row(), own, why, first)
}

// Expect takes notice of rows of the log that come when they were looked up: what a sweep finds of their keys is behind them.
func (d *Dispatch) Expect(rows []*tracker.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range rows {
		if k, ordered := d.gate.keyOf(e.Message); ordered {
			d.gate.leave(k, e.Row(), e, "looked up after a start or a new connection", false)
			d.gate.unproven(e)
		}
	}
}

// Final ends the care of a row that the table shows as final.
func (d *Dispatch) Final(e *tracker.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if row := d.gate.rows[e.Row()]; row != nil {
		d.gate.forget(row)
	}
	d.tracker.Forget(e)
}

// Leave leaves a row to the sweep that the log has shown and that was not handed over: its key waits.
func (d *Dispatch) Leave(e *tracker.Entry, cause outbox.Cause) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unfinished(e, nil, causeText(cause))
	d.tracker.Drop(e, cause)
}

// LeaveWaiting is Leave for a row that is not due yet, as the table shows it.
func (d *Dispatch) LeaveWaiting(e *tracker.Entry, c *outbox.Candidate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !postponed(c) {
		d.unfinished(e, nil, causeText(outbox.CauseWaiting))
	}
	d.tracker.Drop(e, outbox.CauseWaiting)
}

// LeaveClaimed ends the care of a row that an earlier process has claimed: its key waits until the sweep has taken it over.
func (d *Dispatch) LeaveClaimed(e *tracker.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unfinished(e, nil, "an earlier process has claimed it")
	d.tracker.Forget(e)
}

// causeText says to a person why a row was left to the sweep.
func causeText(cause outbox.Cause) string {
	switch cause {
	case outbox.CauseTopic:
		return "its topic is suspended"
	case outbox.CauseOutage:
		return "its part of the broker is away"
	case outbox.CauseOrder:
		return "it waited for an earlier row, and is next"
	case outbox.CauseNotFound:
		return "the log has shown it, the table not yet"
	case outbox.CauseWaiting:
		return "it waits for its retry"
	}
	return string(cause)
}

// reasonOf says in a few words why a row was not sent.
func reasonOf(c *outbox.Completion) string {
	text := c.Class.String() + ": " + c.Reason
	return text[:min(len(text), 200)]
}

// leaveBehind leaves the rows from next on to the sweep, which were behind one that is not sent soon. Callers hold mu.
func (d *Dispatch) leaveBehind(l *lane, next *tracker.Entry) {
	if l.behind, l.last = 0, l.first; l.first != nil {
		l.first.Sends.Behind = nil
	}
	for next != nil {
		e := next
		next, e.Sends.Behind, e.Sends.InLane = e.Sends.Behind, nil, false
		d.putBehind(e, -1)
		if c, ok := d.deferRow(e, outbox.CauseOrder); ok {
			d.gate.released = append(d.gate.released, c)
		}
	}
	d.gate.release(l) // when nothing was remembered
}

// lane makes the lane of a key.
func (o *order) lane(k rowKey) *lane {
	var l *lane
	if n := len(o.spare); n > 0 {
		l, o.spare = o.spare[n-1], o.spare[:n-1]
	} else {
		l = &lane{}
	}
	l.rowKey = k
	o.keys[k] = l
	return l
}

// release takes a lane out that has no row.
func (o *order) release(l *lane) {
	if l.first != nil || len(l.left) > 0 || o.keys[l.rowKey] != l {
		return
	}
	delete(o.keys, l.rowKey)
	*l = lane{}
	if len(o.spare) < 1000 {
		o.spare = append(o.spare, l)
	}
}

// takeOver returns what is to be handed on when mu is released, with what the caller has.
func (o *order) takeOver(ready []*outbox.Message, released []outbox.Completion) ([]*outbox.Message, []outbox.Completion) {
	if len(o.ready) > 0 {
		ready = append(ready, o.ready...)
		clear(o.ready)
		o.ready = o.ready[:0]
	}
	if len(o.released) > 0 {
		released = append(released, o.released...)
		clear(o.released)
		o.released = o.released[:0]
	}
	return ready, released
}

func (o *order) kick() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
