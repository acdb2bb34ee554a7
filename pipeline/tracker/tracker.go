// Package tracker records which rows the relay owns and how far the log is settled.
//
// Guarantee: a row has one owner at a time, from the moment it is admitted, reserved or taken over from the journal until its
// completion is written or it is left to the sweep. The checkpoint never passes a transaction with a row that is neither journalled as
// sent, nor final in the table, nor left to the sweep.
//
// It has no goroutine, no clock and no sink, and calls only Sweeps, which does not block. Every method may be called from any
// goroutine. One mutex guards the registry and the low-water mark; it is the last in the order of locks.
package tracker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Sweeps takes triggers of sweeps. Its methods do not block.
type Sweeps interface {
	// Trigger asks for a sweep at once.
	Trigger()
	// DueIn announces a row that is left to the sweep and becomes due after a while, or must be checked then.
	DueIn(outbox.Identity, time.Duration)
}

// Tracker is the account of rows and positions. Make it with New.
type Tracker struct {
	sweeps  Sweeps
	log     *zap.Logger
	metrics *metrics

	activity       atomic.Uint64 // see Activity
	unwritten      atomic.Int64  // rows with a completion that the table has not
	sweptUnwritten atomic.Int64  // of these, rows that the sweep found
	keptOpen       atomic.Int64  // see Kept
	failing        atomic.Int64  // bytes of Unwritten

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when goroutines wait
	waiters  int
	registry map[outbox.Identity]*Entry
	lowWater *lowWater
	saved    outbox.Position // what Checkpoint returned last
	epoch    uint64          // of the low-water mark: raised by each Reset
	offered  outbox.Position
	kept     kept
}

// New makes a tracker whose low-water mark starts at a position.
func New(flavor outbox.Flavor, at outbox.Position, sweeps Sweeps, log *zap.Logger, reg prometheus.Registerer) (*Tracker, error) {
	m, err := newLowWater(flavor, at)
	if err != nil {
		return nil, err
	}
	return &Tracker{
		sweeps: sweeps, log: log, metrics: newMetrics(reg), changed: make(chan struct{}), registry: map[outbox.Identity]*Entry{},
		lowWater: m, saved: at, offered: at,
	}, nil
}

// Own takes over the entries of the journal before the reader starts, and sets their Entry: until they are written, no other
// part may touch their rows. Only here are rows found by their identity alone.
func (t *Tracker) Own(journal []outbox.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range journal {
		if id := journal[i].Identity; t.registry[id] == nil {
			e := &Entry{id: id, origin: fromJournal, LogOnly: journal[i].LogOnly}
			t.list(e)
			journal[i].Entry = e
			if e.LogOnly {
				t.kept.old = append(t.kept.old, e)
			} else {
				t.unwritten.Add(1)
			}
		}
	}
}

// Complete passes rows on to ack: their completion is made, and the message is not needed any more.
func (t *Tracker) Complete(entries ...*Entry) {
	for _, e := range entries {
		e.Message = nil
		if e.Swept() {
			t.sweptUnwritten.Add(1)
		}
	}
	t.unwritten.Add(int64(len(entries)))
}

// Unwritten is the window of the rows with a completion that the table has not. Its bytes are those of messages that wait for the failed-message
// log; the other messages are not needed any more.
func (t *Tracker) Unwritten() Window {
	return Window{Rows: int(t.unwritten.Load()), Bytes: int(t.failing.Load()), Swept: int(t.sweptUnwritten.Load())}
}

// Settled takes completions that are durable: sent ones right before the very batch that journals them, others once the table
// shows them. The low-water mark may move over their rows.
func (t *Tracker) Settled(list []outbox.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		if e := t.owned(&list[i]); e != nil {
			if e.LogOnly && list[i].Action == outbox.ActionMarkSent {
				t.keep(e)
			}
			t.settle(e)
		}
	}
	t.broadcast()
}

// Written takes completions that the table shows: the rows leave the registry.
func (t *Tracker) Written(list []outbox.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		e := t.owned(&list[i])
		if e == nil {
			continue
		}
		if list[i].Action != outbox.ActionMarkSent {
			t.activity.Add(1)
		}
		t.unlist(e)
		if list[i].Action == outbox.ActionRetry {
			t.sweeps.DueIn(e.id, list[i].Delay) // the database has counted from the write a moment ago
		}
		if e.LogOnly && list[i].Action == outbox.ActionMarkSent {
			continue // see keep
		}
		if list[i].Message != nil {
			t.failing.Add(-int64(list[i].Message.Size()))
		}
		t.unwritten.Add(-1)
		if e.Swept() {
			t.sweptUnwritten.Add(-1)
		}
	}
	t.broadcast()
}

// owned is the entry of a completion, unless its row has left the registry. Callers hold mu.
func (t *Tracker) owned(c *outbox.Completion) *Entry {
	if e := Of(c.Entry); e != nil && e.listed {
		return e
	}
	return nil
}

// list puts an entry into the registry, where nothing stands under its id. Callers hold mu.
func (t *Tracker) list(e *Entry) { t.registry[e.id], e.listed = e, true }

// unlist takes an entry out of the registry. The entry itself records that it is there: a look-up by identity, with thousands of
// rows in memory, would have to fetch the identity from main memory. Callers hold mu.
func (t *Tracker) unlist(e *Entry) {
	if e.listed {
		delete(t.registry, e.id)
		e.listed = false
	}
}

// Settle lets the low-water mark pass a row that the relay still owns: the table shows it as PENDING, and after a crash the
// sweep finds it.
func (t *Tracker) Settle(e *Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(e)
}

// settle lets the low-water mark move over a row. Callers hold mu.
func (t *Tracker) settle(e *Entry) {
	if e.seq != 0 {
		t.settleOne(e.seq)
		e.seq = 0
	}
}

func (t *Tracker) settleOne(seq uint64) {
	if err := t.lowWater.settle(seq); err != nil {
		t.Bug("progress accounting is wrong", zap.Error(err))
	}
}

// Forget ends the ownership of a row that is final in the table, or that another relay or sender owns there.
func (t *Tracker) Forget(e *Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unlist(e)
	t.settle(e)
}

// Drop leaves a row to the sweep: the position moves on and the sweep does the work. A row with a claim is given back in the table
// first, by a completion, and must not be dropped.
func (t *Tracker) Drop(e *Entry, cause outbox.Cause) {
	t.Defer(cause, 1) // first: activity changes before the row has no owner
	t.Forget(e)
}

// Deferred returns the number of rows that were left to the sweep since the start.
func (t *Tracker) Deferred() uint64 { return t.metrics.left.Load() }

// Defer counts rows that are left to the sweep. A row that waits for its time shows that when a sweep finds it, and a row that
// does not begin as PENDING is for another program to change. Any other row may look to a sweep like one that the log never
// showed.
func (t *Tracker) Defer(cause outbox.Cause, rows int) {
	t.metrics.deferred[cause].Add(float64(rows))
	t.metrics.left.Add(uint64(rows))
	switch cause {
	case outbox.CauseNotDue, outbox.CauseWaiting, outbox.CauseStatus:
	default:
		t.activity.Add(1)
	}
	if cause.Triggers() {
		t.sweeps.Trigger()
	}
}

// Activity is the activity epoch. It changes, at the latest when the row has no owner any more, whenever a row that the log has shown
// may be left PENDING and due to the sweep: it was deferred, its completion was not that it was sent, or part of the log is passed
// over. As long as it stays the same, a row that a sweep finds was not shown as inserted, or is older than that.
func (t *Tracker) Activity() uint64 { return t.activity.Load() }

// Disturb changes the activity epoch.
func (t *Tracker) Disturb() { t.activity.Add(1) }

// Bug reports broken bookkeeping.
func (t *Tracker) Bug(what string, fields ...zap.Field) {
	t.metrics.bugs.Inc()
	t.log.Error(what+": please report this", fields...)
}

// Owns reports whether a row is in the relay's hands.
func (t *Tracker) Owns(id outbox.Identity) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.registry[id] != nil
}

// Has reports whether an entry is in the registry.
func (t *Tracker) Has(e *Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.listed
}

// Owner returns the entry of a row that is in the registry; nil when the row has no owner.
func (t *Tracker) Owner(row outbox.Identity) *Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.registry[row]
}

// Owned counts the rows in the registry.
func (t *Tracker) Owned() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.registry)
}

// Changed returns a channel that is closed when rows were written or the log went on.
func (t *Tracker) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiters++
	return t.changed
}

// broadcast wakes the goroutines that wait. Callers hold mu.
func (t *Tracker) broadcast() {
	if t.waiters > 0 {
		close(t.changed)
		t.changed = make(chan struct{})
		t.waiters = 0
	}
}
