package tracker

import (
	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is the side of the log: transactions come in the order of their commits.

// Begin opens a transaction in the low-water mark and returns its number. What the reader deferred of it is counted.
func (t *Tracker) Begin(txn *outbox.Txn) (seq uint64) {
	for _, d := range txn.Deferred {
		t.Defer(d.Cause, max(d.Rows, 1))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	seq = t.lowWater.open(txn.End, txn.GTID, len(txn.Messages))
	if txn.More {
		t.lowWater.slot(seq).piece = true
	}
	return seq
}

// Admit takes ownership of rows of the transaction that was begun last, and appends the entries of those that had no owner to
// into. Each message then carries the entry of its row. A row that has an owner is dropped: the owner settles it.
//
// A transaction may be admitted in pieces, so that the registry does not hold all rows of a large one at once.
func (t *Tracker) Admit(seq uint64, rows []*outbox.Message, into []*Entry) []*Entry {
	entries := make([]Entry, len(rows))
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, m := range rows {
		if owner := t.registry[m.Identity]; owner != nil {
			t.leaveToOwner(owner, seq)
			m.Entry = owner // for Withdraw: the owner may answer for this transaction now
			continue
		}
		e := &entries[i]
		*e = Entry{Message: m, Size: m.Size(), RetryCount: m.RetryCount, LogOnly: m.LogOnly, id: m.Identity, seq: seq}
		t.list(e)
		m.Entry = e
		into = append(into, e)
	}
	return into
}

// leaveToOwner drops a row that has an owner. Its transaction need not wait for the owner, except when the owner is the fast
// path itself with a transaction that a reset has forgotten or that was withdrawn: then the owner settles this transaction.
// Callers hold mu.
func (t *Tracker) leaveToOwner(owner *Entry, seq uint64) {
	if owner.seq != 0 && t.lowWater.forgotten(owner.seq) {
		owner.seq = seq
		return
	}
	if owner.Swept() { // the sweep may give it back
		t.activity.Add(1)
	}
	t.settleOne(seq)
}

// Withdraw removes the transaction that was begun last, because it was not taken over completely. rest are its rows that were
// not passed on: they have no owner any more. The other rows continue, and settle the transaction when it comes again.
func (t *Tracker) Withdraw(txn *outbox.Txn, seq uint64, rest []*Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range rest {
		t.unlist(e)
		e.seq = 0
	}
	for _, m := range txn.Messages {
		if e := Of(m.Entry); e != nil && e.seq == seq {
			e.seq = withdrawn
		}
	}
	kept := t.lowWater.drop(seq)
	t.keptOpen.Add(-int64(len(kept)))
	// Some of its rows, kept or in flight, may lie behind the end that the log had when this stream was opened. It ends now.
	t.kept.old, t.kept.barrier = append(t.kept.old, kept...), outbox.Position{}
}

// Offered returns the position up to which every transaction was offered: a row below it without an owner will not come from the
// log.
func (t *Tracker) Offered() outbox.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offered
}

// SetOffered says where the reader is: behind a transaction that was taken over whole, or at the begin of a stream.
func (t *Tracker) SetOffered(at outbox.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offered = at
	t.broadcast()
}

// Idle records that the server has nothing behind a position: everything before was offered.
func (t *Tracker) Idle(at outbox.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.offered.Compare(at) < 0 {
		t.offered = at
		t.broadcast()
	}
	t.lowWater.idle(at)
}

// Reset sets a new low-water mark: after a gap, a failover or an operator's move. Open transactions are forgotten; their rows
// continue. Reset returns the epoch that begins: a checkpoint that Checkpoint returned before belongs to an older one.
func (t *Tracker) Reset(flavor outbox.Flavor, at outbox.Position) (epoch uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := outbox.ParseGTIDSet(flavor, at.GTIDs); err != nil {
		return 0, err
	}
	t.forgetKept()
	if err := t.lowWater.reset(flavor, at); err != nil {
		return 0, err
	}
	t.offered, t.saved = at, at
	t.epoch++
	t.activity.Add(1) // for what the log showed, and what it will not show
	t.broadcast()
	return t.epoch, nil
}

// Rewind sets the offered position back to the low-water mark and returns it: the transactions behind it are offered again. Rows
// in flight then settle their transactions. The epoch stays, because an operator did not choose the position.
func (t *Tracker) Rewind() (outbox.Position, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.lowWater.position()
	t.offered = at
	t.activity.Add(1)
	t.broadcast()
	t.forgetKept()
	return at, t.lowWater.reset(t.lowWater.set.Flavor(), at)
}

// Generation counts how often the position was set elsewhere, by Reset.
func (t *Tracker) Generation() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}

// LowWater returns the low-water mark without its GTID set.
func (t *Tracker) LowWater() outbox.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lowWater.low
}

// Checkpoint returns the low-water mark with its epoch, and whether it moved since the last call.
func (t *Tracker) Checkpoint() (at outbox.Position, epoch uint64, moved bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
	t.kept.saved, t.kept.passed = append(t.kept.saved, t.kept.passed...), nil
	if t.lowWater.low == (outbox.Position{File: t.saved.File, Offset: t.saved.Offset}) {
		return t.saved, t.epoch, false
	}
	t.saved = t.lowWater.position()
	return t.saved, t.epoch, true
}
