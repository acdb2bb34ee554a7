package tracker

import "github.com/canal-outbox/canal-outbox/outbox"

// Reserve takes ownership for the sweep and returns the rows that had no owner, each with its entry.
func (t *Tracker) Reserve(rows []outbox.Candidate) []outbox.Candidate {
	free := make([]outbox.Candidate, 0, len(rows))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range rows {
		if t.registry[c.Identity] == nil {
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
