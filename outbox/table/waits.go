package table

import (
	"container/list"
	"context"
	"fmt"
	"strconv"
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

// keepsWaits reports whether a part of a refused row's state is kept outside the table.
func (t *Table) keepsWaits() bool { return !t.has(NextRetryTime) || !t.has(RetryCount) }

// recall fills in what the table does not say of a row.
func (s *Store) recall(t *Table, c *outbox.Candidate, now time.Time) {
	if c.Status != outbox.Pending && t.has(RetryCount) {
		return
	}
	w, ok := s.waits.Wait(c.Identity)
	if !ok {
		return
	}
	if !t.has(RetryCount) {
		c.RetryCount = w.Attempts
	}
	wait := w.Due.Sub(now)
	if c.Status == outbox.Pending && (!t.has(NextRetryTime) || wait.Milliseconds() > c.DueInMilli) {
		c.Waiting, c.DueInMilli = wait > earlyMicros*time.Microsecond, (wait + time.Millisecond - 1).Milliseconds()
	}
}

// keep notes the waits of rows that are to be tried again, before the table shows the attempt: a row whose attempt is counted
// and whose wait is lost would be tried at once.
func (s *Store) keep(ctx context.Context, t *Table, action outbox.Action, rows []outbox.Completion) error {
	if !t.triesAgain(action) {
		return nil
	}
	if !t.keepsWaits() {
		if back, err := s.setBackWithin(ctx, t, longestDelay(rows)); err != nil || !back {
			return err
		}
	}
	now, put := time.Now(), make([]Waiting, len(rows))
	for i, row := range rows {
		put[i] = Waiting{row.Identity, Wait{Due: now.Add(row.Delay), Attempts: row.RetryCount + 1}}
	}
	if err := s.waits.Keep(put, nil); err != nil {
		return fmt.Errorf("keep the waits of %d rows: %w", len(rows), err)
	}
	return nil
}

func longestDelay(rows []outbox.Completion) (longest time.Duration) {
	for i := range rows {
		longest = max(longest, rows[i].Delay)
	}
	return longest
}

const (
	zoneAhead = 48 * time.Hour // within which a change of a zone is looked for
	zoneEvery = time.Hour      // how often, while there is none
)

// setBackWithin reports whether the clock of the due time's zone is set back within a time, as it is when summer time ends. A local time of the
// hour that comes twice then looks as if it had passed: the wait of such a row is kept in memory, too.
func (s *Store) setBackWithin(ctx context.Context, t *Table, d time.Duration) (bool, error) {
	if d <= zoneAhead-zoneEvery && time.Now().UnixNano() < t.steady.Load() {
		return false, nil
	}
	ahead := max(d, zoneAhead)
	zone := t.zoneOf(NextRetryTime)
	local := func(at string) string { return "CONVERT_TZ(" + at + ", '+00:00', " + zone + ")" }
	query := &statement{}
	query.add("SELECT COALESCE(TIMESTAMPDIFF(SECOND, ", local("UTC_TIMESTAMP()"), ", ", local("UTC_TIMESTAMP() + INTERVAL "+seconds(d)+" SECOND"), "), ", seconds(d), "), ",
		"COALESCE(TIMESTAMPDIFF(SECOND, ", local("UTC_TIMESTAMP()"), ", ", local("UTC_TIMESTAMP() + INTERVAL "+seconds(ahead)+" SECOND"), "), ", seconds(ahead), ")")
	var passed, passedAhead int64
	if err := s.scan(ctx, query, &passed, &passedAhead); err != nil {
		return false, fmt.Errorf("look for a change of the time zone of %s: %w", t.name, err)
	}
	if passedAhead == int64(ahead/time.Second) {
		t.steady.Store(time.Now().Add(zoneEvery).UnixNano())
	}
	return passed < int64(d/time.Second), nil
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// forget drops the waits of rows that are final.
func (s *Store) forget(t *Table, action outbox.Action, rows []outbox.Completion) error {
	if action == outbox.ActionRelease || t.triesAgain(action) {
		return nil
	}
	var drop []outbox.Identity
	for i := range rows {
		if _, waits := s.waits.Wait(rows[i].Identity); waits {
			drop = append(drop, rows[i].Identity)
		}
	}
	if len(drop) == 0 {
		return nil
	}
	return s.waits.Keep(nil, drop)
}
