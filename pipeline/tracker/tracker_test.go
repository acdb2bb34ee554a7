package tracker

import (
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const sent = outbox.ActionMarkSent

func TestCheckpointFollowsCompletionsInLogOrder(t *testing.T) {
	a := newAccount(t)
	a.offer("[1]", row(1))
	a.offer("[2]", row(2))
	a.offer("[]")
	list := a.complete(sent, row(1), row(2))
	if _, _, moved := a.Checkpoint(); moved {
		t.Fatal("the checkpoint moved before anything was journalled")
	}
	a.Settled(list[1:])
	if _, _, moved := a.Checkpoint(); moved {
		t.Fatal("the checkpoint passed an unsettled transaction")
	}
	a.Settled(list[:1])
	a.wantCheckpoint(300, uuid+":1-3")
	a.Settled(list) // a repeated completion of an owned row counts once
	a.Written(list)
	a.Written(list)
	if a.Owned() != 0 || a.Unwritten() != (Window{}) {
		t.Fatalf("left over: %d owned, unwritten %+v", a.Owned(), a.Unwritten())
	}
}

func TestOwnedRowsAreDropped(t *testing.T) {
	a := newAccount(t)
	a.offer("[1]", row(1))
	a.offer("[]", row(1))
	journal := []outbox.Completion{{Identity: row(2).Identity}}
	a.Own(journal)
	a.offer("[]", row(2))
	free := a.Reserve(candidates(row(1), row(3)))
	if len(free) != 1 || free[0].ID != "3" || !Of(free[0].Entry).Swept() {
		t.Fatalf("the sweep got %v", free)
	}
	a.offer("[]", row(3))
	a.Release(append(free, candidates(row(1))...))
	a.offer("[3]", row(3))
	if a.offer("[]", row(1)); !a.Owns(row(1).Identity) || a.Owner(row(1).Identity) != a.sent[row(1).Identity] { // it was not the sweep's
		t.Error("the sweep released a row of the log")
	}
	a.Written(journal)
	if a.Unwritten().Rows != 0 || a.Owned() != 2 {
		t.Errorf("%d rows unwritten, %d owned", a.Unwritten().Rows, a.Owned())
	}
}

// A row in flight whose transaction comes again after a move back holds the checkpoint there, too.
func TestMoveBackKeepsTheMarkBehindRowsInFlight(t *testing.T) {
	a := newAccount(t)
	a.offer("[1]", row(1))
	if generation, err := a.Reset(outbox.MySQL, end(0)); err != nil || generation != a.Generation() || generation == 0 {
		t.Fatal(generation, err)
	}
	a.next = 0
	a.offer("[]", row(1))
	a.offer("[]")
	if at, _, moved := a.Checkpoint(); moved {
		t.Fatalf("the checkpoint %v passed a row in flight", at)
	}
	a.finish(sent, row(1))
	a.wantCheckpoint(200, uuid+":1-2")
	if _, err := a.Reset(outbox.MySQL, outbox.Position{File: "binlog.000001", GTIDs: "nonsense"}); err == nil || a.Generation() != 1 {
		t.Errorf("a position with an unreadable GTID set: %v, generation %d", err, a.Generation())
	}
	a.wantCheckpoint(200, uuid+":1-2")
}

// A transaction that was withdrawn comes again. Its rows that were taken over answer for it; no row of the rest has an owner.
func TestMarkWaitsForRowsOfAWithdrawnTransaction(t *testing.T) {
	a := newAccount(t)
	txn := a.txn(row(1), row(2))
	seq, _ := a.give(txn)
	a.Withdraw(txn, seq, []*Entry{a.sent[row(2).Identity]})
	if _, ids := a.give(txn); !slices.Equal(ids, []string{"2"}) {
		t.Fatalf("rows %v go to the sink", ids)
	}
	a.finish(sent, row(2))
	if at, _, moved := a.Checkpoint(); moved {
		t.Fatalf("the checkpoint %v passed a row in flight", at)
	}
	a.finish(sent, row(1))
	a.wantCheckpoint(100, uuid+":1")
}

// A row that answered for a transaction which was then withdrawn answers for no other that gets its number.
func TestOwnerOfAWithdrawnTransactionSettlesNoOther(t *testing.T) {
	a := newAccount(t)
	a.offer("[1]", row(1))
	if _, err := a.Rewind(); err != nil {
		t.Fatal(err)
	}
	a.next = 0
	again := a.txn(row(1))
	seq, _ := a.give(again)
	a.Withdraw(again, seq, nil)
	a.next = 0
	a.offer("[2]", row(2)) // another server's history, after a failover
	a.finish(sent, row(1))
	if at, _, moved := a.Checkpoint(); moved {
		t.Fatalf("the checkpoint %v passed row 2 in flight", at)
	}
	a.finish(sent, row(2))
	a.wantCheckpoint(100, uuid+":1")
}

// Rewind goes back to the mark: what was offered behind it comes again, and rows in flight are not sent twice.
func TestRewindGoesBackToTheMark(t *testing.T) {
	a := newAccount(t)
	a.offer("[1]", row(1))
	a.finish(sent, row(1))
	a.offer("[2]", row(2))
	a.offer("[3]", row(3))
	at, err := a.Rewind()
	if err != nil || at.Offset != 100 || at.GTIDs != uuid+":1" || a.Offered() != at || a.LowWater().Offset != 100 || a.Generation() != 0 {
		t.Fatalf("at %v %s, offered %v: %v", at, at.GTIDs, a.Offered(), err)
	}
	a.next = 1
	a.offer("[]", row(2))
	a.offer("[]", row(3))
	a.finish(sent, row(3))
	a.wantCheckpoint(100, uuid+":1")
	a.finish(sent, row(2))
	a.wantCheckpoint(300, uuid+":1-3")
}

// A sweep takes what it finds for rows that the log never showed unless the caller says otherwise: the activity number changes with everything
// that leaves a row to it, and with nothing else.
func TestActivityChangesWithWhatIsLeftToTheSweep(t *testing.T) {
	finish := func(action outbox.Action) func(*account) {
		return func(a *account) {
			a.offer("[1]", row(1))
			a.finish(action, row(1))
		}
	}
	drop := func(cause outbox.Cause) func(*account) {
		return func(a *account) {
			a.offer("[1]", row(1))
			a.Drop(a.sent[row(1).Identity], cause)
			if a.Owned() != 0 {
				a.t.Error("a row that was left to the sweep has an owner")
			}
			a.wantCheckpoint(100, uuid+":1")
		}
	}
	for name, c := range map[string]struct {
		then func(*account)
		want bool
	}{
		"sent":            {finish(sent), false},
		"nothing of ours": {func(a *account) { a.offer("[]") }, false},
		"not due":         {drop(outbox.CauseNotDue), false},
		"not PENDING":     {drop(outbox.CauseStatus), false},
		"claimed":         {drop(outbox.CauseWaiting), false},
		"broker away":     {drop(outbox.CauseOutage), true},
		"refused":         {finish(outbox.ActionRetry), true},
		"sent by the sweep": {func(a *account) {
			m := row(1)
			m.Entry = a.Reserve(candidates(m))[0].Entry
			e, ok := a.ReadBack(m)
			if !ok || e.Message != m {
				a.t.Fatal("the row was not reserved")
			}
			a.sent[m.Identity] = e
			list := a.complete(sent, m)
			if w := a.Unwritten(); w.Rows != 1 || w.Swept != 1 {
				a.t.Errorf("unwritten: %+v", w)
			}
			a.Written(list)
			if w := a.Unwritten(); w.Rows+w.Swept != 0 {
				a.t.Errorf("unwritten: %+v", w)
			}
		}, false},
		"a group": {func(a *account) {
			txn := a.txn()
			txn.Deferred = []outbox.Deferred{{Cause: outbox.CauseXA}}
			a.give(txn)
		}, true},
		"shown while a sweep looks at it": {func(a *account) {
			free := a.Reserve(candidates(row(1)))
			a.offer("[]", row(1))
			a.Release(free)
		}, true},
		"the position is moved":   {func(a *account) { _, _ = a.Reset(outbox.MySQL, end(7)) }, true}, // an error changes nothing
		"the reader starts again": {func(a *account) { _, _ = a.Rewind() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t)
			before := a.Activity.Count()
			c.then(a)
			if changed := a.Activity.Count() != before; changed != c.want {
				t.Errorf("activity changed: %v, want %v", changed, c.want)
			}
		})
	}
}

// A row that the table shows as refused is looked at when its time has come. One that is settled stays owned and holds nothing back.
func TestARefusedRowIsAnnouncedWhenItIsWritten(t *testing.T) {
	a := newAccount(t)
	a.offer("[1 2]", row(1), row(2))
	list := a.complete(outbox.ActionRetry, row(1))
	list[0].Delay = time.Minute
	a.Settled(list)
	if len(a.asked) != 0 {
		t.Error("a retry is announced that the table does not show")
	}
	a.Written(list)
	if !slices.Equal(a.asked, []time.Duration{time.Minute}) || a.Has(a.sent[row(1).Identity]) {
		t.Errorf("announced %v", a.asked)
	}
	probe := a.sent[row(2).Identity]
	a.Settle(probe)
	a.wantCheckpoint(100, uuid+":1")
	if !a.Has(probe) || !probe.Logged() {
		t.Error("a settled row has no owner")
	}
	a.Forget(probe)
	if a.Has(probe) || a.Owner(row(2).Identity) != nil {
		t.Error("a forgotten row is owned")
	}
}

// What was not reserved is not published, and a row that is settled too often is reported and moves nothing.
func TestBrokenBookkeepingIsReported(t *testing.T) {
	a := newAccount(t)
	a.offer("[1]", row(1))
	m := row(1)
	m.Entry = a.sent[m.Identity]
	for _, wrong := range []*outbox.Message{row(9), m} {
		if _, ok := a.ReadBack(wrong); ok {
			t.Errorf("row %s was never reserved", wrong.ID)
		}
	}
	a.mu.Lock()
	a.settleOne(77)
	a.mu.Unlock()
	if n := counted(t, a.bugs); n != 3 {
		t.Errorf("%v bugs are reported, want 3", n)
	}
	if _, _, moved := a.Checkpoint(); moved {
		t.Error("the checkpoint moved")
	}
}

// Each change wakes what waits for it. A server that has nothing behind a position moves the reader and the mark there.
func TestWaitersAreWokenByEachChange(t *testing.T) {
	a := newAccount(t)
	for what, change := range map[string]func(){
		"a transaction": func() { a.offer("[]") },
		"a row":         func() { a.Written(nil) },
		"a batch":       func() { a.Settled(nil) },
		"silence":       func() { a.Idle(end(65)) },
		"a move":        func() { _, _ = a.Reset(outbox.MySQL, end(60)) }, // an error wakes none
		"a new start":   func() { _, _ = a.Rewind() },
	} {
		changed := a.Changed()
		change()
		select {
		case <-changed:
		default:
			t.Errorf("%s wakes no waiter", what)
		}
	}
	a.SetOffered(end(70))
	a.Idle(end(80))
	a.Idle(end(75))
	if a.Offered() != end(80) || a.LowWater() != end(80) {
		t.Errorf("offered %v, mark %v", a.Offered(), a.LowWater())
	}
}
