package tracker

import (
	"slices"
	"sync/atomic"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Rows whose table has no status (outbox.Message.LogOnly) are recorded as sent in the journal alone. Such a row is kept,
// in the journal and in the registry, until the checkpoint has passed its transaction: as long as the log can show it again, it has an
// owner.

// kept are the rows of transactions that are not open any more, or for which it is not known. Guarded by Tracker.mu.
type kept struct {
	pieces []*Entry // of a large transaction whose end is still to come: its pieces end where it begins (begin)
	begin  outbox.Position
	passed []*Entry // the low-water mark is behind their transactions
	saved  []*Entry // of them, those behind what Checkpoint has returned
	// old are from the journal, or of transactions that a reset has forgotten. They lie before the end of the log when a stream was
	// opened (barrier), so the mark has passed them when it has passed that.
	old     []*Entry
	barrier outbox.Position

	open atomic.Int64 // rows whose transactions wait for others
}

// add notes that a row was sent. Callers hold mu and settle the row afterwards.
func (k *kept) add(e *Entry, in *lowWater) {
	if s := in.slot(e.seq); s != nil {
		s.kept = append(s.kept, e)
		k.open.Add(1)
		return
	}
	k.old = append(k.old, e)
}

// pass takes over the rows of transactions that the mark has moved over. Callers hold mu.
func (k *kept) pass(mark *lowWater) {
	for _, s := range mark.takePassed() {
		if !s.piece {
			k.open.Add(-int64(len(s.kept)))
			k.passed = append(k.passed, s.kept...)
			continue
		}
		if s.end != k.begin {
			k.passPieces()
		}
		k.pieces, k.begin = append(k.pieces, s.kept...), s.end
	}
	low := mark.low
	if low != k.begin {
		k.passPieces()
	}
	if len(k.old) > 0 && !k.barrier.IsZero() && low.File != "" && low.Compare(k.barrier) >= 0 {
		k.passed, k.old = append(k.passed, k.old...), nil
	}
}

// passPieces is for a large transaction whose end was passed. Callers hold mu.
func (k *kept) passPieces() {
	k.open.Add(-int64(len(k.pieces)))
	k.passed, k.pieces = append(k.passed, k.pieces...), nil
}

// forget treats all rows as old: the positions of their transactions mean nothing any more. Callers hold mu and reset the low-water
// mark afterwards.
func (k *kept) forget(mark *lowWater) {
	for i := range mark.slots {
		k.old = append(k.old, mark.slots[i].kept...)
	}
	for _, s := range mark.takePassed() {
		k.old = append(k.old, s.kept...)
	}
	k.old = slices.Concat(k.old, k.pieces, k.passed, k.saved)
	k.pieces, k.passed, k.saved, k.barrier = nil, nil, nil, outbox.Position{}
	k.open.Store(0)
}
