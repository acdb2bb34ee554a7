package tracker

import (
	"strconv"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Rows whose statuses their table refuses, perhaps for ever, take no room from others: of the log and of a sweep, up to a number.
func TestRefusedRowsTakeNoRoom(t *testing.T) {
	a := newAccount(t)
	rows := make([]outbox.Candidate, mostAside+2)
	for i := range rows {
		rows[i].Identity = row(1).Identity
		rows[i].ID = strconv.Itoa(i)
	}
	rows = a.Reserve(rows)
	sent := make([]outbox.Completion, len(rows))
	for i, c := range rows {
		sent[i] = outbox.Completion{Identity: c.Identity, Action: outbox.ActionMarkSent, Entry: c.Entry}
		a.Complete(Of(c.Entry))
	}
	if w := a.Unwritten(); w.Rows != len(rows) || w.Swept != len(rows) {
		t.Fatalf("%+v wait, of %d", w, len(rows))
	}
	a.Refused(sent[:1])
	a.Refused(sent[:1]) // once more: nothing changes
	if w := a.Unwritten(); w.Rows != len(rows)-1 || w.Swept != len(rows)-1 || !a.Owns(sent[0].Identity) {
		t.Errorf("%+v wait after one of %d is refused", w, len(rows))
	}
	changed := a.Changed()
	a.Refused(sent)
	select {
	case <-changed:
	default:
		t.Error("what waits for room is not woken")
	}
	if w := a.Unwritten(); w.Rows != 2 || w.Swept != 2 {
		t.Errorf("%+v wait, want the rows beyond %d", w, mostAside)
	}
	a.Written(sent)
	if w := a.Unwritten(); w.Rows != 0 || w.Swept != 0 || a.aside != 0 || a.Owned() != 0 {
		t.Errorf("%+v wait, %d are set aside, %d are owned after all are written", w, a.aside, a.Owned())
	}
}
