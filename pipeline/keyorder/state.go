package keyorder

import (
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// keyState is a key with a row in memory, or with rows that are left.
type keyState struct {
	Key
	first, last *tracker.Entry // in memory: the first is at the sink, in the retry buffer or a probe row; those behind it wait for it
	behind      int            // rows behind the first
	left        []*leftRow     // rows that are not final and not in memory, in the order of their primary keys; the later rows of the key wait for them
	at          int            // in memory.waiting, while rows are left
	look        time.Time      // when to look at the first of them in the table
	looks       int            // since the first changed
	call        uint64         // of the last Reserved that met it
}

// leftRow is a row that the table has and that is not final. The later rows of its key wait for it.
type leftRow struct {
	id      outbox.Identity
	key     *keyState
	entry   *tracker.Entry // that brings it, as long as it owns the row: its completion is being written, or a sweep has reserved it
	since   time.Time
	why     string
	inTable bool   // the table has shown it
	inLog   bool   // the log has shown it, or never will
	follows uint64 // reports of deferred rows before it, while these are not known; 0: none
	call    uint64 // of the last Reserved that met it
	read    int    // readings of the table that had begun when it was remembered
	goes    uint64 // of the last Reserved that let it go
	setBack bool   // it was FAILED, and others of its key that are FAILED need not wait for it
}

// add puts a row behind the others in memory. One that a sweep brings comes behind the last with a lesser primary key: the table may have shown
// it late, and those behind it are then later rows of the log.
func (s *keyState) add(e *tracker.Entry) {
	e.Sends.Queued = true
	if s.first == nil {
		s.first, s.last = e, e
		return
	}
	s.behind++
	at := s.last
	if e.Swept() && before(e.Row().ID, at.Row().ID) {
		at = s.first
		for one := s.first.Sends.Behind; one != nil; one = one.Sends.Behind {
			if before(one.Row().ID, e.Row().ID) {
				at = one
			}
		}
	}
	e.Sends.Behind, at.Sends.Behind = at.Sends.Behind, e
	if at == s.last {
		s.last = e
	}
}

// unchain takes the first row out and returns the one behind it.
func (s *keyState) unchain() (next *tracker.Entry) {
	next, s.first.Sends.Behind, s.first.Sends.Queued, s.first = s.first.Sends.Behind, nil, false, nil
	return next
}

func (s *keyState) lookNow(now time.Time) { s.look, s.looks = now, 0 }

// holds reports whether a row comes before another one that is remembered, or that is in memory and may have to be remembered. Primary keys
// need not grow, so this is not only for those that were committed later. s may be nil.
func (s *keyState) holds(id string) bool {
	if s == nil {
		return false
	}
	if len(s.left) > 0 && before(id, s.left[len(s.left)-1].id.ID) {
		return true
	}
	for e := s.first; e != nil; e = e.Sends.Behind {
		if before(id, e.Row().ID) {
			return true
		}
	}
	return false
}

// memory holds the keys that have rows, and the rows that are left.
type memory struct {
	limit   int // of rows
	tables  map[string]*tableState
	wakes   bool // looking or reading is due earlier than the caller expects
	keys    map[Key]*keyState
	rows    map[outbox.Identity]*leftRow
	waiting []*keyState // with rows left, in no order
	spare   []*keyState
}

func newMemory(limit int) memory {
	return memory{limit: limit, tables: map[string]*tableState{}, keys: map[Key]*keyState{}, rows: map[outbox.Identity]*leftRow{}}
}

// key makes the state of a key.
func (m *memory) key(k Key) *keyState {
	var s *keyState
	if n := len(m.spare); n > 0 {
		s, m.spare = m.spare[n-1], m.spare[:n-1]
	} else {
		s = &keyState{}
	}
	s.Key = k
	m.keys[k] = s
	return s
}

// release takes the state of a key out that has no row.
func (m *memory) release(s *keyState) {
	if s.first != nil || len(s.left) > 0 || m.keys[s.Key] != s {
		return
	}
	delete(m.keys, s.Key)
	*s = keyState{}
	if len(m.spare) < 1000 {
		m.spare = append(m.spare, s)
	}
}

// insert puts a row among those that are left of its key. The texts are copied: they may be parts of a message. It reports whether the key did
// not wait before.
func (m *memory) insert(k Key, id outbox.Identity, e *tracker.Entry, why string, now time.Time) (row *leftRow, waits bool) {
	s := m.keys[k]
	if s == nil {
		s = m.key(Key{k.Table, strings.Clone(k.Topic), strings.Clone(k.Key)})
	}
	row = &leftRow{
		id:  outbox.Identity{Table: id.Table, ID: strings.Clone(id.ID), MessageID: strings.Clone(id.MessageID)},
		key: s, entry: e, since: now, why: why,
	}
	if waits = len(s.left) == 0; waits {
		s.at = len(m.waiting)
		m.waiting = append(m.waiting, s)
	}
	at := len(s.left)
	if at > 0 && before(row.id.ID, s.left[at-1].id.ID) {
		at, _ = slices.BinarySearchFunc(s.left, row.id.ID, compareRow)
	}
	if at == 0 {
		s.lookNow(now)
	}
	s.left = slices.Insert(s.left, at, row)
	m.rows[row.id] = row
	return row, waits
}

// remove takes a row out of those that are left.
func (m *memory) remove(row *leftRow, now time.Time) {
	s := row.key
	if s.left[0] == row {
		s.left[0] = nil
		s.left = s.left[1:]
		s.lookNow(now)
	} else {
		at := slices.Index(s.left, row)
		s.left = slices.Delete(s.left, at, at+1)
	}
	delete(m.rows, row.id)
	m.tidy(s)
}

// tidy takes a key from which rows were removed out of where it is not needed any more.
func (m *memory) tidy(s *keyState) {
	if len(s.left) > 0 {
		return
	}
	last := m.waiting[len(m.waiting)-1]
	m.waiting[s.at], last.at = last, s.at
	m.waiting[len(m.waiting)-1] = nil
	m.waiting = m.waiting[:len(m.waiting)-1]
	s.left = nil
	m.release(s)
}
