package tracker

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// A sent row is owned and journalled until the checkpoint has passed it, and counts as unwritten no longer than until then.
func TestLogOnlyRowsAreKeptUntilTheCheckpointPassesThem(t *testing.T) {
	a := newAccount(t)
	a.offer("[1]", logOnly(1))
	a.offer("[2 3]", logOnly(2), logOnly(3))
	held := a.journal(nil, row(2), row(3))
	if a.Owned() != 3 || a.Unwritten().Rows != 0 || a.Kept() != 2 {
		t.Fatalf("%d owned, %d unwritten, %d kept", a.Owned(), a.Unwritten().Rows, a.Kept())
	}
	if held = a.journal(held); fmt.Sprint(held) != "[2 3]" {
		t.Fatalf("the journal forgot rows behind the checkpoint: %v", held)
	}
	held = a.journal(a.journal(held, row(1)))
	if len(held) != 0 || a.Owned() != 0 || a.Kept() != 0 {
		t.Fatalf("journal %v, %d owned, %d kept", held, a.Owned(), a.Kept())
	}
}

// The rows of the journal leave when the mark has passed the end that the log had when the stream was opened; so do rows whose transaction
// was forgotten by a new start.
func TestLogOnlyRowsOfOldTransactionsLeaveBehindTheBarrier(t *testing.T) {
	a := newAccount(t)
	a.Own([]outbox.Completion{{Identity: row(1).Identity, LogOnly: true}, {Identity: row(9).Identity, LogOnly: true}})
	a.offer("[2]", logOnly(2))
	a.offer("[3]", logOnly(3))
	held := a.journal([]string{"1", "9"}, row(3))
	if _, err := a.Rewind(); err != nil {
		t.Fatal(err)
	}
	a.next = 0
	a.Barrier(end(2))
	a.offer("[]", logOnly(2))
	if held = a.journal(a.journal(held, row(2))); fmt.Sprint(held) != "[1 9 3]" { // 2 was passed at once
		t.Fatalf("journal %v", held)
	}
	a.offer("[]", logOnly(3))
	if held = a.journal(a.journal(held)); len(held) != 0 || a.Owned() != 0 || a.Kept() != 0 {
		t.Fatalf("journal %v, %d owned, %d kept", held, a.Owned(), a.Kept())
	}
}

// A large transaction comes in pieces. Its rows are kept until its end is passed, also when it comes a second time.
func TestLogOnlyRowsComeInPieces(t *testing.T) {
	a := newAccount(t)
	a.offer("[1]", logOnly(1))
	piece := func(rows ...*outbox.Message) { a.give(&outbox.Txn{End: end(1), Messages: rows, More: true}) }
	a.journal(a.journal(nil, row(1)))
	a.Idle(outbox.Position{File: "binlog.000001", Offset: 140}) // behind what is not sent to the reader
	piece(logOnly(2), logOnly(3))
	held := a.journal(a.journal(nil, row(2), row(3)))
	if a.wantCheckpoint(140, uuid+":1"); fmt.Sprint(held) != "[2 3]" {
		t.Fatalf("journal %v", held)
	}
	piece(logOnly(2), logOnly(3)) // the stream broke
	piece(logOnly(4))
	if held = a.journal(a.journal(held, row(4))); fmt.Sprint(held) != "[2 3 4]" {
		t.Fatalf("the journal forgot a piece before the end of its transaction: %v", held)
	}
	a.offer("[]") // no row is left for its end
	held = a.journal(a.journal(held))
	if a.wantCheckpoint(200, uuid+":1-2"); len(held) != 0 || a.Owned() != 0 {
		t.Fatalf("journal %v, %d owned", held, a.Owned())
	}
}

// A failed row waits with its message, and its transaction waits for it.
func TestLogOnlyRowsThatFailCarryTheirMessage(t *testing.T) {
	a := newAccount(t)
	m := logOnly(1)
	a.offer("[1]", m)
	list := a.complete(outbox.ActionFail, m)
	a.Carry(&list[0], m)
	if a.Unwritten().Bytes != m.Size() || list[0].Message != m {
		t.Fatalf("%d bytes wait for the failed-message log", a.Unwritten().Bytes)
	}
	a.wantCheckpoint(4, "")
	a.Settled(list)
	a.Written(list)
	if a.wantCheckpoint(100, uuid+":1"); a.Unwritten().Bytes != 0 || a.Owned() != 0 || a.Kept() != 0 {
		t.Errorf("%d bytes, %d owned, %d kept", a.Unwritten().Bytes, a.Owned(), a.Kept())
	}
}
