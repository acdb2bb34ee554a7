package tracker

import "github.com/canal-outbox/canal-outbox/outbox"

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
			m.Entry = owner // for Withdraw: the owner may settle this transaction now
			continue
		}
		if t.isLeft(m.Identity) {
			t.settleOne(seq)
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
		t.Activity.Disturb()
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
	t.kept.open.Add(-int64(len(kept)))
	// Some of its rows, kept or in flight, may lie behind the end that the log had when this stream was opened. It ends now.
	t.kept.old, t.kept.barrier = append(t.kept.old, kept...), outbox.Position{}
}

// Reserve takes ownership for the sweep and returns the rows that had no owner, each with its entry.
func (t *Tracker) Reserve(rows []outbox.Candidate) []outbox.Candidate {
	free := make([]outbox.Candidate, 0, len(rows))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range rows {
		if t.registry[c.Identity] == nil && !t.isLeft(c.Identity) {
			e := &Entry{id: c.Identity, origin: fromSweep}
			t.list(e)
			c.Entry = e
			free = append(free, c)
		}
	}
	return free
}

// Release gives rows back that were reserved for the sweep and not published.
func (t *Tracker) Release(rows []outbox.Candidate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range rows {
		if e := Of(rows[i].Entry); e != nil {
			t.unlist(e)
		}
	}
}

// ReadBack gives a reserved row its message. It reports false, and says so, when the message does not carry the entry of such a row.
func (t *Tracker) ReadBack(m *outbox.Message) (e *Entry, ok bool) {
	e = Of(m.Entry)
	if e == nil || !e.Swept() || e.Message != nil || e.id != m.Identity {
		t.Bug("a row is published that was not reserved")
		return nil, false
	}
	e.Message, e.Size, e.RetryCount = m, m.Size(), m.RetryCount
	return e, true
}

// owned is the entry of a completion, unless its row has left the registry. Callers hold mu.
func (t *Tracker) owned(c *outbox.Completion) *Entry {
	if e := Of(c.Entry); e != nil && e.listed {
		return e
	}
	return nil
}

// list puts an entry into the registry, where its id has no entry yet. Callers hold mu.
func (t *Tracker) list(e *Entry) { t.registry[e.id], e.listed = e, true }

// unlist takes an entry out of the registry. The entry itself records that it is there: a look-up by identity, with thousands of
// rows in memory, would have to fetch the identity from main memory. Callers hold mu.
func (t *Tracker) unlist(e *Entry) {
	if e.listed {
		delete(t.registry, e.id)
		e.listed = false
	}
}

// Owns reports whether a row is owned by the relay.
func (t *Tracker) Owns(id outbox.Identity) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.registry[id] != nil || t.isLeft(id)
}

// Has reports whether an entry is in the registry.
func (t *Tracker) Has(e *Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.listed
}

// Owner returns the entry of a row; nil when the row has no owner. That of a row that is left in the journal says only that the journal has it, and is in no
// registry.
func (t *Tracker) Owner(row outbox.Identity) *Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.registry[row]
	if e == nil && t.isLeft(row) {
		e = &Entry{id: row, origin: fromJournal}
	}
	return e
}

// Each calls f with the entry of every row that has an owner, but for rows that are left. f must not call the tracker.
func (t *Tracker) Each(f func(*Entry)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.registry {
		f(e)
	}
}

// Owned counts the rows that have an owner.
func (t *Tracker) Owned() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.registry) + t.Left()
}
