package dispatch

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/keyorder"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// This file applies the decisions of keyorder to rows in memory: it hands rows to the sink, or leaves them to the sweep. The questions to the
// table are in ordered_read.go.

const behindShare = 8 // of what may be in flight, the part that one key may have behind its first row; all keys together have half

// WaitingKey is a key that waits for a row of its own (ordering: key).
type WaitingKey = keyorder.WaitingKey

func newOrder(cfg *Config) *keyorder.Order {
	return keyorder.New(keyorder.Limits{
		Rows: cfg.MaxWaiting, Behind: cfg.MaxInFlight / behindShare, AllBehind: cfg.MaxInFlight / 2, BehindBytes: cfg.MaxInFlightBytes / 2,
	}, cfg.Ordered)
}

// unlock releases mu after an event of the order, and wakes keepOrder if it has something to do.
func (d *Dispatch) unlock() {
	wakes := d.order.Wakes()
	d.mu.Unlock()
	if wakes {
		select {
		case d.orderWake <- struct{}{}:
		default:
		}
	}
}

// handover is what is handed on when mu is released: messages to the sink, and completions to ack.
type handover struct {
	ready    []*outbox.Message
	released []outbox.Completion
}

// take returns what is to be handed on, with what the caller has.
func (h *handover) take(ready []*outbox.Message, released []outbox.Completion) ([]*outbox.Message, []outbox.Completion) {
	if len(h.ready) > 0 {
		ready = append(ready, h.ready...)
		clear(h.ready)
		h.ready = h.ready[:0]
	}
	if len(h.released) > 0 {
		released = append(released, h.released...)
		clear(h.released)
		h.released = h.released[:0]
	}
	return ready, released
}

// pass reports whether a row that is to go to the sink may go at once. Else it stays in memory behind the row of its key that is there, or, if
// an earlier one is not final, it is left to the sweep. Callers hold mu.
func (d *Dispatch) pass(e *tracker.Entry, now time.Time) bool {
	decision := d.order.Come(e, now)
	if decision == keyorder.Leave {
		d.leaveToSweep(outbox.CauseOrder, e)
	}
	return decision == keyorder.Send
}

// mayGoAgain asks once more for a row in memory that goes to the sink another time. If it may not go, it is left to the sweep with those behind
// it. Callers hold mu.
func (d *Dispatch) mayGoAgain(e *tracker.Entry, now time.Time) bool {
	if d.order.Again(e) {
		return true
	}
	if c, ok := d.deferRow(e, outbox.CauseOrder, now); ok {
		d.out.released = append(d.out.released, c)
	}
	return false
}

// keyWaits makes the key of a row wait that is not at the sink and was not sent, and leaves the rows behind it to the sweep. writes is its entry
// while a completion is on its way to the table, nil when the row has no owner any more. Callers hold mu, and have not completed it.
func (d *Dispatch) keyWaits(e, writes *tracker.Entry, why string, now time.Time) {
	d.leaveToSweep(outbox.CauseOrder, d.order.Unsent(e, writes, why, now)...)
}

// leaveToSweep leaves rows to the sweep that the order remembers. Callers hold mu.
func (d *Dispatch) leaveToSweep(cause outbox.Cause, rows ...*tracker.Entry) {
	for _, e := range rows {
		if c, ok := d.release(e, cause); ok {
			d.out.released = append(d.out.released, c)
		}
	}
}

// Expect takes notice of rows of the log that come when they were looked up: what a sweep finds of their keys is behind them.
func (d *Dispatch) Expect(rows []*tracker.Entry) {
	d.mu.Lock()
	defer d.unlock()
	now := time.Now()
	for _, e := range rows {
		d.order.Expect(e, now)
	}
}

// Deferred takes rows into account that the reader leaves to the sweep. It is called before later rows of the log are handed over, and before
// those of the same transaction. A table that is not ordered is skipped; no entry affects another.
func (d *Dispatch) Deferred(list []outbox.Deferred) {
	if d.order.Empty() || len(list) == 0 {
		return
	}
	d.mu.Lock()
	defer d.unlock()
	d.order.Deferred(list)
}

// Final ends the care of a row that the table shows as final.
func (d *Dispatch) Final(e *tracker.Entry) {
	d.mu.Lock()
	defer d.unlock()
	d.order.Final(e.Row(), time.Now())
	d.tracker.Forget(e)
}

// Leave leaves a row to the sweep that the log has shown and that was not handed over: its key waits.
func (d *Dispatch) Leave(e *tracker.Entry, cause outbox.Cause) {
	d.mu.Lock()
	defer d.unlock()
	d.keyWaits(e, nil, causeText(cause), time.Now())
	d.tracker.Drop(e, cause)
}

// LeaveWaiting is Leave for a row that is not due yet, as the table shows it.
func (d *Dispatch) LeaveWaiting(e *tracker.Entry, c *outbox.Candidate) {
	d.mu.Lock()
	defer d.unlock()
	if !keyorder.Postponed(c) {
		d.keyWaits(e, nil, causeText(outbox.CauseWaiting), time.Now())
	}
	d.tracker.Drop(e, outbox.CauseWaiting)
}

// LeaveClaimed ends the care of a row that an earlier process has claimed: its key waits until the sweep has taken it over.
func (d *Dispatch) LeaveClaimed(e *tracker.Entry) {
	d.mu.Lock()
	defer d.unlock()
	d.keyWaits(e, nil, "an earlier process has claimed it", time.Now())
	d.tracker.Forget(e)
}

// Reserve takes ownership for the sweep. It returns the rows without an owner that may go, each with its entry; and those that are to
// be left alone: of suspended topics, and those whose key waits for an earlier row. Rows of a table that is being read are in neither.
func (d *Dispatch) Reserve(rows []outbox.Candidate) (free, alone []outbox.Candidate) {
	d.mu.Lock()
	defer d.unlock()
	rows, alone = d.withoutSuspended(rows)
	if d.order.Empty() {
		return d.tracker.Reserve(rows), alone
	}
	reserved := d.tracker.Reserve(d.order.WithoutUnread(rows))
	free, waiting := d.order.Reserved(reserved, d.tracker.Offered(), time.Now())
	d.tracker.Release(waiting)
	return free, append(alone, waiting...)
}

// Unread makes the relay read the tables that keep the order of their keys: a part of the log was skipped.
func (d *Dispatch) Unread() {
	d.mu.Lock()
	defer d.unlock()
	d.order.Unread()
}

// Ahead takes the end of the log up to which the sweep or a timer continues though the log was not offered: rows that are not known may come
// before those that it finds.
func (d *Dispatch) Ahead(end outbox.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.order.Ahead(end)
}

// WaitingKeys returns the keys that wait longest, at most n.
func (d *Dispatch) WaitingKeys(n int) []WaitingKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.order.WaitingKeys(n)
}

// Behind returns the earlier row of its key that a row waits for, and why that one is not final; false when it waits for none, or is not known.
func (d *Dispatch) Behind(id outbox.Identity) (first outbox.Identity, why string, waits bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.order.WaitsFor(id)
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
