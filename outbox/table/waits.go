package table

import (
	"container/list"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Wait is what a table has no columns for: until when a refused row waits, and how often it was refused.
type Wait struct {
	Due      time.Time // by this machine's clock
	Attempts int
}

// Waiting is the wait of a row.
type Waiting struct {
	outbox.Identity
	Wait
}

// Waits keep the waits of rows whose table lacks the due time or the attempts, beyond the end of the process. They may forget:
// then a row is tried earlier and the count of its attempts restarts. Each method may be called from several goroutines.
type Waits interface {
	// Wait returns the wait of a row; false when there is none.
	Wait(outbox.Identity) (Wait, bool)
	// Keep puts waits, in place of older ones, and then drops those of rows that need none any more. With a nil error what was
	// put is durable.
	Keep(put []Waiting, drop []outbox.Identity) error
	// Waiting counts the rows of a table that wait, and returns the longest time that one of them still has to.
	Waiting(table string, now time.Time) (rows int, longest time.Duration)
	// Of returns the rows of a table that have a wait, in no order.
	Of(table string) []outbox.Identity
}

// MaxWaits bounds how many waits are kept: the oldest go first.
const MaxWaits = 100_000

const (
	waitsExpire = 24 * time.Hour // this long after its due time, the row is gone or was sent by another sender
	waitsPrune  = 10 * time.Minute
)

// WaitMap is Waits in memory alone. The zero value is empty and ready to use.
type WaitMap struct {
	mu     sync.Mutex
	byRow  map[outbox.Identity]*list.Element // of Waiting
	order  list.List                         // the oldest first
	pruned time.Time
	limit  int // MaxWaits
}

// Wait implements Waits.
func (m *WaitMap) Wait(id outbox.Identity) (Wait, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byRow[id]; e != nil {
		return e.Value.(Waiting).Wait, true
	}
	return Wait{}, false
}

// Keep implements Waits; the error is nil.
func (m *WaitMap) Keep(put []Waiting, drop []outbox.Identity) error {
	m.Change(put, drop, time.Now())
	return nil
}

// Change is Keep. It returns the rows whose waits went: of those dropped, and for want of room or because they have expired.
func (m *WaitMap) Change(put []Waiting, drop []outbox.Identity, now time.Time) (gone []outbox.Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byRow == nil {
		m.byRow = map[outbox.Identity]*list.Element{}
	}
	for _, w := range put {
		if e := m.byRow[w.Identity]; e != nil {
			m.order.Remove(e)
		}
		m.byRow[w.Identity] = m.order.PushBack(w)
	}
	for _, id := range drop {
		if e := m.byRow[id]; e != nil {
			gone = append(gone, m.remove(e))
		}
	}
	if now.Sub(m.pruned) >= waitsPrune {
		m.pruned = now
		for e := m.order.Front(); e != nil; {
			next := e.Next()
			if now.Sub(e.Value.(Waiting).Due) > waitsExpire {
				gone = append(gone, m.remove(e))
			}
			e = next
		}
	}
	limit := m.limit
	if limit == 0 {
		limit = MaxWaits
	}
	for m.order.Len() > limit {
		gone = append(gone, m.remove(m.order.Front()))
	}
	return gone
}

func (m *WaitMap) remove(e *list.Element) outbox.Identity {
	id := m.order.Remove(e).(Waiting).Identity
	delete(m.byRow, id)
	return id
}

// Waiting implements Waits.
func (m *WaitMap) Waiting(table string, now time.Time) (rows int, longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, e := range m.byRow {
		if wait := e.Value.(Waiting).Due.Sub(now); id.Table == table && wait > 0 {
			rows++
			longest = max(longest, wait)
		}
	}
	return rows, longest
}

// Of implements Waits.
func (m *WaitMap) Of(table string) (ids []outbox.Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.byRow {
		if id.Table == table {
			ids = append(ids, id)
		}
	}
	return ids
}

// KeepsWaits reports whether a part of a refused row's state is kept outside the table.
func (t *Table) KeepsWaits() bool { return !t.Has(NextRetryTime) || !t.Has(RetryCount) }
