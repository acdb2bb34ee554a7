package tracker

import "github.com/canal-outbox/canal-outbox/outbox"

// Journal marks the rows that are sent and wait for their status in the journal alone: a drain is not to wait for the tables, and a row in memory takes
// some hundred bytes. They have an owner. Its methods do not block.
type Journal interface {
	// SetLeft marks a row of the journal, or removes its mark, and reports whether that changed.
	SetLeft(row outbox.Identity, left bool) (changed bool)
	IsLeft(row outbox.Identity) bool
}

// LeaveIn says where rows are left. It is called before any other method.
func (t *Tracker) LeaveIn(journal Journal) { t.journal = journal }

// isLeft reports whether a row is left in the journal. Callers hold mu, as SetLeft's do.
func (t *Tracker) isLeft(id outbox.Identity) bool {
	return t.leftRows.Load() > 0 && t.journal.IsLeft(id)
}

// Leave takes sent rows out of memory that the journal has: Fetch brings them back. They keep their owner.
func (t *Tracker) Leave(list []outbox.Completion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		if !t.journal.SetLeft(list[i].Identity, true) {
			continue
		}
		t.leftRows.Add(1)
		if e := t.owned(&list[i]); e != nil {
			t.unlist(e)
			t.unwritten.Add(-1)
		}
	}
	t.broadcast() // there is room
}

// Fetch takes rows of the journal that were left into memory, with their Entry, and returns those of the list, in its array; the others were not left, or
// are back already.
func (t *Tracker) Fetch(list []outbox.Completion) []outbox.Completion {
	entries, fetched := make([]Entry, len(list)), list[:0]
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range list {
		if !t.journal.SetLeft(c.Identity, false) {
			continue
		}
		t.leftRows.Add(-1)
		e := &entries[len(fetched)]
		*e = Entry{id: c.Identity, origin: fromJournal}
		t.list(e)
		t.unwritten.Add(1)
		c.Entry = e
		fetched = append(fetched, c)
	}
	clear(list[len(fetched):])
	t.broadcast() // there is room for more that are left
	return fetched
}
