package tracker

import "github.com/canal-outbox/canal-outbox/outbox"

// Rows whose table has no status (outbox.Message.LogOnly) have no place but the journal that says that they were sent. Such a row is kept,
// in the journal and in the registry, until the checkpoint has passed its transaction: as long as the log can show it again, it has an
// owner that answers for it.

// kept are the rows of transactions that are not open any more, or of which it is not known. Guarded by Tracker.mu.
type kept struct {
	pieces []*Entry // of a large transaction whose end is still to come: its pieces end where it begins (begin)
	begin  outbox.Position
	passed []*Entry // the low-water mark is behind their transactions
	saved  []*Entry // of them, those behind what Checkpoint has returned
	// old are from the journal, or of transactions that a reset has forgotten. They lie before the end of the log when a stream was
	// opened (barrier), so the mark has passed them when it has passed that.
	old     []*Entry
	barrier outbox.Position
}

// keep notes that a row was sent. Callers hold mu and settle the row afterwards.
func (t *Tracker) keep(e *Entry) {
	t.unwritten.Add(-1) // it waits for no table
	if s := t.lowWater.slot(e.seq); s != nil {
		s.kept = append(s.kept, e)
		t.keptOpen.Add(1)
		return
	}
	t.kept.old = append(t.kept.old, e)
}

// pass takes over the rows of transactions that the mark has moved over. Callers hold mu.
func (t *Tracker) pass() {
	k := &t.kept
	for _, s := range t.lowWater.takePassed() {
		if !s.piece {
			t.keptOpen.Add(-int64(len(s.kept)))
			k.passed = append(k.passed, s.kept...)
			continue
		}
		if s.end != k.begin {
			t.passPieces()
		}
		k.pieces, k.begin = append(k.pieces, s.kept...), s.end
	}
	low := t.lowWater.low
	if low != k.begin {
		t.passPieces()
	}
	if len(k.old) > 0 && !k.barrier.IsZero() && low.File != "" && low.Compare(k.barrier) >= 0 {
		k.passed, k.old = append(k.passed, k.old...), nil
	}
}

// passPieces is for a large transaction whose end was passed. Callers hold mu.
func (t *Tracker) passPieces() {
	k := &t.kept
	t.keptOpen.Add(-int64(len(k.pieces)))
	k.passed, k.pieces = append(k.passed, k.pieces...), nil
}

// forgetKept treats all rows as old: the positions of their transactions mean nothing any more. Callers hold mu and reset the low-water
// mark afterwards.
func (t *Tracker) forgetKept() {
	k := &t.kept
	for i := range t.lowWater.slots {
		k.old = append(k.old, t.lowWater.slots[i].kept...)
	}
	for _, s := range t.lowWater.takePassed() {
		k.old = append(k.old, s.kept...)
	}
	k.old = append(append(append(k.old, k.pieces...), k.passed...), k.saved...)
	k.pieces, k.passed, k.saved, k.barrier = nil, nil, nil, outbox.Position{}
	t.keptOpen.Store(0)
}

// Barrier says where the log ended when a stream was opened.
func (t *Tracker) Barrier(end outbox.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.barrier = end
	t.pass()
}

// Passed returns the rows without a status whose transactions lie before the last checkpoint that was returned: the caller calls it
// when that checkpoint is durable, takes them out of the journal, and then calls Written.
func (t *Tracker) Passed() (list []outbox.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.kept.saved {
		list = append(list, outbox.Completion{Identity: e.id, Action: outbox.ActionMarkSent, LogOnly: true, Entry: e})
	}
	t.kept.saved = nil
	return list
}

// Carry puts the message of a row that failed into its completion: the failed-message log needs it.
func (t *Tracker) Carry(c *outbox.Completion, m *outbox.Message) {
	c.Message = m
	t.failing.Add(int64(m.Size()))
}

// Kept counts the rows that were sent and whose transactions wait for others.
func (t *Tracker) Kept() int { return int(t.keptOpen.Load()) }
