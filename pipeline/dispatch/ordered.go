package dispatch

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/keyorder"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// This file applies the decisions of keyorder to rows in memory. The questions to the table are in ordered_read.go.

// ordered is the side of dispatch for the order of keys: what recovery and the sweep report about rows, and what they may take.
type ordered struct {
	*core
	*broker
	rows    Rows
	failing map[string]question // by table; guarded by mu
}

const behindShare = 8 // of what may be in flight, the part that one key may have behind its first row; all keys together have half

// WaitingKey is a key that waits for a row of its own (ordering: key).
type WaitingKey = keyorder.WaitingKey

func newOrder(cfg *Config) *keyorder.Order {
	return keyorder.New(keyorder.Limits{
		Rows: cfg.MaxWaiting, Behind: cfg.MaxInFlight / behindShare, AllBehind: tracker.Limit{Rows: cfg.MaxInFlight / 2, Bytes: cfg.MaxInFlightBytes / 2},
	}, cfg.Ordered)
}

// Expect takes notice of rows of the log that come when they were looked up: what a sweep finds of their keys is behind them.
func (o *ordered) Expect(rows []*tracker.Entry) {
	o.mu.Lock()
	defer o.handOn()
	now := time.Now()
	for _, e := range rows {
		o.order.Expect(e, now)
	}
}

// Deferred takes rows into account that the reader leaves to the sweep. It is called before later rows of the log are handed over, and before
// those of the same transaction. A table that is not ordered is skipped; no entry affects another.
func (o *ordered) Deferred(list []outbox.Deferred) {
	if o.order.Empty() || len(list) == 0 {
		return
	}
	o.mu.Lock()
	defer o.handOn()
	o.order.Deferred(list)
}

// Final removes a row that the table shows as final.
func (o *ordered) Final(e *tracker.Entry) {
	o.mu.Lock()
	defer o.handOn()
	o.order.Final(e.Row(), time.Now())
	o.tracker.Forget(e)
}

// Leave leaves a row to the sweep that the log has shown and that was not handed over: its key waits.
func (o *ordered) Leave(e *tracker.Entry, cause outbox.Cause) {
	o.mu.Lock()
	defer o.handOn()
	o.keyWaits(e, nil, causeText(cause), time.Now())
	o.tracker.Drop(e, cause)
}

// LeaveWaiting is Leave for a row that is not due yet, as the table shows it.
func (o *ordered) LeaveWaiting(e *tracker.Entry, c *outbox.Candidate) {
	o.mu.Lock()
	defer o.handOn()
	if !c.Postponed() {
		o.keyWaits(e, nil, causeText(outbox.CauseWaiting), time.Now())
	}
	o.tracker.Drop(e, outbox.CauseWaiting)
}

// LeaveClaimed leaves a row that an earlier process has claimed to the sweep: its key waits until the sweep has taken it over.
func (o *ordered) LeaveClaimed(e *tracker.Entry) {
	o.mu.Lock()
	defer o.handOn()
	o.keyWaits(e, nil, "an earlier process has claimed it", time.Now())
	o.tracker.Forget(e)
}

// Reserve takes ownership for the sweep. It returns the rows without an owner that may go, each with its entry; and those that are to
// be left alone: of suspended topics, and those whose key waits for an earlier row. Rows of a table that is being read are in neither.
func (o *ordered) Reserve(rows []outbox.Candidate) (free, alone []outbox.Candidate) {
	o.mu.Lock()
	defer o.handOn()
	rows, alone = o.topics.split(rows)
	if o.order.Empty() {
		return o.tracker.Reserve(rows), alone
	}
	reserved := o.tracker.Reserve(o.order.WithoutUnread(rows))
	free, waiting := o.order.Reserved(reserved, o.tracker.Offered(), time.Now())
	o.tracker.Release(waiting)
	return free, append(alone, waiting...)
}

// SetBack gives rows back that were reserved and that the table shows as PENDING now.
func (o *ordered) SetBack(rows []outbox.Candidate) {
	o.mu.Lock()
	defer o.handOn()
	o.order.SetBack(rows, time.Now())
	o.tracker.Release(rows)
}

// Unread makes the relay read the tables that keep the order of their keys: a part of the log was skipped.
func (o *ordered) Unread() {
	o.mu.Lock()
	defer o.handOn()
	o.order.Unread()
}

// Ahead takes the end of the log up to which the sweep or a timer continues though the log was not offered: rows that are not known may come
// before those that it finds.
func (o *ordered) Ahead(end outbox.Position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.order.Ahead(end)
}

// WaitingKeys returns the keys that wait longest, at most n.
func (o *ordered) WaitingKeys(n int) []WaitingKey {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order.WaitingKeys(n)
}

// Behind returns the earlier row of its key that a row waits for, and why that one is not final; false when it waits for none, or is not known.
func (o *ordered) Behind(id outbox.Identity) (first outbox.Identity, why string, waits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order.WaitsFor(id)
}

// causeText says to a person why a row was left to the sweep.
func causeText(cause outbox.Cause) string {
	switch cause {
	case outbox.CauseTopic:
		return "its topic is suspended"
	case outbox.CauseTable:
		return "its table takes no statuses, or cannot be read"
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
