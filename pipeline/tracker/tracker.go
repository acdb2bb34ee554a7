// Package tracker records which rows the relay owns and how far the log is settled.
//
// Guarantee: a row has one owner at a time, from when it is admitted, reserved or taken over from the journal until its
// completion is written or it is left to the sweep. The checkpoint never passes a transaction with a row that is neither journalled as
// sent, nor final in the table, nor left to the sweep.
//
// It has no goroutine, no clock and no sink, and calls only Sweeps, which does not block. Every method may be called from any
// goroutine. One mutex guards the registry and the low-water mark; it is the last in the order of locks.
package tracker

import (
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

// Tracker is the account of rows and positions: the registry of owned rows, the progress of the log, the activity, and the rows behind the
// sink. Make it with New. It has more than 25 methods because each is one step of a row's life, under one lock.
type Tracker struct {
	Activity *Activity

	progress
	backlog
	sweeps   Sweeps
	log      *zap.Logger
	bugs     prometheus.Counter
	registry map[outbox.Identity]*Entry // guarded by mu
	journal  Journal                    // constant
}

// New makes a tracker whose low-water mark starts at a position.
func New(flavor outbox.Flavor, at outbox.Position, sweeps Sweeps, log *zap.Logger, reg prometheus.Registerer) (*Tracker, error) {
	mark, err := newLowWater(flavor, at)
	if err != nil {
		return nil, err
	}
	bugs, deferred := newMetrics(reg)
	activity := &Activity{sweeps: sweeps, deferred: deferred}
	return &Tracker{
		Activity: activity, sweeps: sweeps, log: log, bugs: bugs, registry: map[outbox.Identity]*Entry{},
		progress: progress{activity: activity, changed: make(chan struct{}), lowWater: mark, saved: at, offered: at},
	}, nil
}

// Own takes over the entries of the journal before the reader starts, and sets their Entry: until they are written, no other
// part may touch their rows. Only here are rows found by their identity alone.
func (t *Tracker) Own(journal []outbox.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range journal {
		if id := journal[i].Identity; t.registry[id] == nil && !t.isLeft(id) {
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

// Begin opens a transaction in the low-water mark and returns its number. What the reader deferred of it is counted.
func (t *Tracker) Begin(txn *outbox.Txn) (seq uint64) {
	for _, d := range txn.Deferred {
		t.Activity.Defer(d.Cause, max(d.Rows, 1))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	seq = t.lowWater.open(txn.End, txn.GTID, len(txn.Messages))
	if txn.More {
		t.lowWater.slot(seq).piece = true
	}
	return seq
}

// Settled takes completions that are durable: sent ones right before the very batch that journals them, others once the table
// shows them. The low-water mark may move over their rows.
func (t *Tracker) Settled(list []outbox.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		if e := t.owned(&list[i]); e != nil {
			if e.LogOnly && list[i].Action == outbox.ActionMarkSent {
				t.unwritten.Add(-1) // it waits for no table
				t.kept.add(e, t.lowWater)
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
			t.Activity.Disturb()
		}
		t.unlist(e)
		if list[i].Action == outbox.ActionRetry {
			t.sweeps.DueIn(e.id, list[i].Delay) // the database counted from the write before
		}
		if e.LogOnly && list[i].Action == outbox.ActionMarkSent {
			continue // see Settled
		}
		t.written(e, list[i].Message)
	}
	t.broadcast()
}

// mostAside is the number of refused rows that Unwritten does not count: some 70 MB.
const mostAside = 100_000

// Refused takes sent rows whose status their table refuses, perhaps for ever, so that they take no room from other rows. Up to mostAside are set aside;
// they are owned until they are written.
func (t *Tracker) Refused(list []outbox.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		if e := t.owned(&list[i]); e != nil && !e.aside && t.aside < mostAside {
			t.written(e, nil)
			e.aside = true
			t.aside++
		}
	}
	t.broadcast()
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
	t.Activity.Defer(cause, 1) // first: activity changes before the row has no owner
	t.Forget(e)
}

// Bug reports broken bookkeeping.
func (t *Tracker) Bug(what string, fields ...zap.Field) {
	t.bugs.Inc()
	t.log.Error(what+": please report this", fields...)
}
