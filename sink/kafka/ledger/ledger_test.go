package ledger

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// ledgerModel is a ledger next to what is true: which rows are committed and not settled, and the newest record of each key, as a compacted topic has
// them.
type ledgerModel struct {
	ledger  *Ledger
	next    int
	visible map[outbox.Identity]bool
	topic   map[string]Entry
}

func newLedgerModel() *ledgerModel {
	return &ledgerModel{ledger: New("p", Slots), visible: map[outbox.Identity]bool{}, topic: map[string]Entry{}}
}

func (m *ledgerModel) fresh(n int) (rows []outbox.Identity) {
	for range n {
		m.next++
		rows = append(rows, outbox.Identity{Table: "s.t" + strconv.Itoa(m.next%2), ID: strconv.Itoa(m.next), MessageID: fmt.Sprint("m", m.next)})
	}
	return rows
}

// commit stores an entry through its encoding.
func (m *ledgerModel) commit(t *rapid.T, e *Entry) {
	e.Tables = []string{"s.t0", "s.t1"}
	stored, ok := Decode(e.Encode())
	if !ok || !slices.Equal(stored.Rows, e.Rows) || stored.Number != e.Number || stored.Low != e.Low || stored.Process != e.Process {
		t.Fatalf("%+v became %+v", e, stored)
	}
	m.topic[string(e.Key())] = stored
	for _, id := range e.Rows[:e.own] {
		m.visible[id] = true
	}
	m.ledger.Committed(e)
}

// found is what a process finds that starts now.
func (m *ledgerModel) found(t *rapid.T) map[outbox.Identity]bool {
	entries := slices.SortedFunc(maps.Values(m.topic), func(a, b Entry) int { return int(a.Number) - int(b.Number) })
	rows := New("q", Slots).Restore(entries)
	if len(entries) > 0 && !Whole(entries) {
		t.Fatal("the topic is not complete")
	}
	found := map[outbox.Identity]bool{}
	for _, id := range rows {
		found[id] = true
	}
	return found
}

func (m *ledgerModel) check(t *rapid.T) {
	found := m.found(t)
	for id := range m.visible {
		if !found[id] {
			t.Fatalf("row %v is committed, not settled and not found", id)
		}
	}
}

// I3: at any time a start finds every committed row that is not settled, and behind a mark no other.
func TestLedgerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newLedgerModel()
		settleSome := func(t *rapid.T) {
			list := slices.SortedFunc(maps.Keys(m.visible), func(a, b outbox.Identity) int { return bytes.Compare([]byte(a.ID), []byte(b.ID)) })
			var done []outbox.Identity
			for _, id := range list {
				if rapid.IntRange(0, 3).Draw(t, "settle") > 0 {
					done = append(done, id)
					delete(m.visible, id)
				}
			}
			m.ledger.Settle(slices.Values(done))
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "transactions") {
					e := m.ledger.Next(m.fresh(rapid.IntRange(1, 3).Draw(t, "rows")))
					switch rapid.IntRange(0, 5).Draw(t, "end") {
					case 0: // aborted
						continue
					case 1:
						settleSome(t) // while it is under way
					}
					m.commit(t, e)
				}
			},
			"settle": settleSome,
			"mark": func(t *rapid.T) {
				for e := m.ledger.Mark(); e != nil; e = m.ledger.Mark() {
					m.commit(t, e)
				}
				if found := m.found(t); len(found) != len(m.visible) {
					t.Fatalf("%d rows are found behind a mark, and %d are not settled", len(found), len(m.visible))
				}
			},
			"restart": func(t *rapid.T) {
				entries := slices.SortedFunc(maps.Values(m.topic), func(a, b Entry) int { return int(a.Number) - int(b.Number) })
				m.ledger = New(fmt.Sprint("p", m.next), Slots)
				rows := m.ledger.Restore(entries)
				var settled []outbox.Identity // their tables show them
				for _, id := range rows {
					if !m.visible[id] {
						settled = append(settled, id)
					}
				}
				m.ledger.Settle(slices.Values(settled))
			},
			"": m.check,
		})
	})
}

// unsettled counts rows, and transactions behind low.
func (l *Ledger) unsettled() (rows, transactions int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rows), int(l.last.Number - l.lowest(l.last.Number+1))
}

// A row that stays locked goes from entry to entry and keeps no other from being forgotten.
func TestLedgerTakesOverOneRow(t *testing.T) {
	m := newLedgerModel()
	stuck := m.fresh(1)
	e := m.ledger.Next(stuck)
	m.ledger.Committed(e)
	longest := 0
	for range 500 {
		rows := m.fresh(2)
		e := m.ledger.Next(rows)
		longest = max(longest, len(e.Rows))
		if e.Number-e.Low > Slots {
			t.Fatalf("entry %d has low %d", e.Number, e.Low)
		}
		m.ledger.Committed(e)
		m.ledger.Settle(slices.Values(rows))
	}
	if rows, behind := m.ledger.unsettled(); rows != 1 || behind > Slots {
		t.Errorf("%d rows are not settled, %d transactions behind", rows, behind)
	}
	if longest != 3 {
		t.Errorf("an entry has %d rows", longest)
	}
}

// More rows than an entry may have stop the intake instead of being forgotten, and an entry stays below the limit of its topic.
func TestLedgerIsBounded(t *testing.T) {
	m := newLedgerModel()
	for range 100 * Slots {
		rows := m.fresh(1000)
		for i := range rows {
			rows[i].MessageID += strings.Repeat("m", 200)
		}
		e := m.ledger.Next(rows)
		if e == nil {
			if rows, _ := m.ledger.unsettled(); rows < Slots*1000 {
				t.Errorf("the intake is stopped at %d rows", rows)
			}
			return
		}
		e.Tables = []string{"s.t0", "s.t1"}
		if n := len(e.Encode()); n > LeastRecordBytes-100_000 {
			t.Fatalf("an entry has %d bytes", n)
		}
		m.ledger.Committed(e)
	}
	t.Error("the intake is not stopped")
}

func FuzzDecode(f *testing.F) {
	e := Entry{Number: 70, Low: 6, Process: "p", Tables: []string{"s.t"}, Rows: []outbox.Identity{{Table: "s.t", ID: "1", MessageID: "\xff"}}}
	f.Add(e.Encode())
	f.Add([]byte{2, 0, 0})
	f.Fuzz(func(t *testing.T, value []byte) {
		if e, ok := Decode(value); ok && (e.Low >= e.Number || e.Number-e.Low > Slots) {
			t.Errorf("%+v", e)
		}
	})
}
