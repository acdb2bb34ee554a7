package tracker

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// marks is a Journal that has every row.
type marks map[outbox.Identity]bool

func (m marks) SetLeft(id outbox.Identity, left bool) bool {
	was := m[id]
	m[id] = left
	return was != left
}

func (m marks) IsLeft(id outbox.Identity) bool { return m[id] }

// A row that is left in the journal has no place in memory and keeps its owner: neither the log nor a sweep brings it again, and the order by key takes it for sent.
// Once it is fetched, it is as any other.
func TestLeftRowsKeepTheirOwner(t *testing.T) {
	a := newAccount(t)
	a.LeaveIn(marks{})
	seq, _ := a.give(a.txn(row(1), row(2)))
	sent := []outbox.Completion{{Identity: row(1).Identity, Entry: a.Owner(row(1).Identity)}, {Identity: row(2).Identity, Entry: a.Owner(row(2).Identity)}}
	a.Complete(a.Owner(row(1).Identity), a.Owner(row(2).Identity))
	for i := range sent {
		sent[i].Action = outbox.ActionMarkSent
	}
	a.Settled(sent)
	a.Leave(sent[:1])
	a.Leave(sent[:1]) // once more: nothing changes
	if a.Left() != 1 || a.Owned() != 2 || a.Unwritten().Rows != 1 || !a.Owns(row(1).Identity) {
		t.Fatalf("%d left, %d owned, %d in memory", a.Left(), a.Owned(), a.Unwritten().Rows)
	}
	if e := a.Owner(row(1).Identity); e == nil || e.Logged() || e.Swept() || a.Has(e) {
		t.Errorf("the owner of the row is %+v", e)
	}
	if rows := a.Reserve([]outbox.Candidate{{Identity: row(1).Identity}, {Identity: row(3).Identity}}); len(rows) != 1 || rows[0].ID != "3" {
		t.Errorf("a sweep takes %v", rows)
	}
	if _, ids := a.give(a.txn(row(1), row(4))); len(ids) != 1 || ids[0] != "4" {
		t.Errorf("the log, which is read again after transaction %d, brings %v", seq, ids)
	}
	changed := a.Changed()
	fetched := a.Fetch([]outbox.Completion{{Identity: row(1).Identity}, {Identity: row(2).Identity}})
	if len(fetched) != 1 || fetched[0].ID != "1" || fetched[0].Entry == nil || a.Left() != 0 || a.Unwritten().Rows != 2 {
		t.Fatalf("fetched %+v, %d left, %d in memory", fetched, a.Left(), a.Unwritten().Rows)
	}
	select {
	case <-changed:
	default:
		t.Error("what waits for fewer left rows is not woken")
	}
	a.Written([]outbox.Completion{fetched[0], sent[1]})
	if a.Owns(row(1).Identity) || a.Unwritten().Rows != 0 {
		t.Errorf("the row has an owner, %d rows are in memory", a.Unwritten().Rows)
	}
}
