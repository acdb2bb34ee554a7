package app

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
)

// What moved the checkpoint is a mark with its kind; the ordinary way forward is none.
func TestMovesAreMarks(t *testing.T) {
	asked, at := 0, time.Now()
	entries := func() ([]admin.HistoryEntry, error) {
		asked++
		return []admin.HistoryEntry{
			{At: at},
			{At: at, Reason: reasonGTIDs},
			{At: at, Reason: reasonFailover, Source: "mysql server_uuid x"},
			{At: at, Reason: reasonGap + "purged"},
			{At: at, Reason: "set by an operator: latest"},
		}, nil
	}
	var m pastMoves
	for range 3 {
		marks, err := m.read(entries)
		if err != nil || len(marks) != 3 {
			t.Fatalf("%+v, %v", marks, err)
		}
		for i, want := range []admin.Mark{
			{At: at, Kind: "failover", Text: "failover to mysql server_uuid x"},
			{At: at, Kind: "gap", Text: "gap: purged"},
			{At: at, Kind: "checkpoint", Text: "checkpoint set by an operator: latest"},
		} {
			if marks[i] != want {
				t.Errorf("got %+v, want %+v", marks[i], want)
			}
		}
	}
	if asked != 1 {
		t.Errorf("the state was read %d times", asked)
	}
}
