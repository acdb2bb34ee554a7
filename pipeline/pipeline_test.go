package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func always(o outbox.Outcome) func(*outbox.Message) outbox.Outcome {
	return func(*outbox.Message) outbox.Outcome { return o }
}

func TestCheckpointFollowsCompletionsInLogOrder(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.offer(row(1))
		b.offer(row(2))
		b.offer()
		b.wantCompletions("1 sent", "2 sent")
		list := b.acks.take()
		if _, _, moved := b.tracker.Checkpoint(); moved {
			t.Fatal("the checkpoint moved before anything was journalled")
		}
		b.tracker.Settled(list[1:])
		if _, _, moved := b.tracker.Checkpoint(); moved {
			t.Fatal("the checkpoint passed an unsettled transaction")
		}
		b.tracker.Settled(list[:1])
		if at, _, moved := b.tracker.Checkpoint(); !moved || at.Offset != 300 || at.GTIDs != uuid+":1-3" {
			t.Fatalf("checkpoint %v %v", at, moved)
		}
		b.tracker.Settled(list) // a repeated completion of an owned row counts once
		b.tracker.Written(list)
		if s := b.Snapshot(); s.Owned != 0 || s.Unwritten != 0 || s.InFlight != 0 {
			t.Fatalf("left over: %+v", s)
		}
	})
}

func TestOwnedRowsAreDropped(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1))
		b.offer(row(1))
		b.wantSent("1")
		b.tracker.Own([]outbox.Completion{{Identity: row(2).Identity}})
		b.offer(row(2))
		b.wantSent("1")
		got := b.reserve(row(1), row(3))
		if len(got) != 1 || got[0].ID != "3" {
			t.Fatalf("the sweep got %v", got)
		}
		b.offer(row(3))
		b.wantSent("1")
		b.Release(append(got, outbox.Candidate{Identity: row(1).Identity}))
		b.offer(row(3))
		b.wantSent("1", "3") // 1 is the fast path's and was not released
	})
}

// A row in flight whose transaction comes again after a move back holds the checkpoint there, too.
func TestMoveBackKeepsTheMarkBehindRowsInFlight(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1))
		if _, err := b.Reset(outbox.MySQL, end(0)); err != nil {
			t.Fatal(err)
		}
		b.next = 0
		b.offer(row(1))
		b.offer()
		b.wantSent("1")
		if at, _, moved := b.tracker.Checkpoint(); moved {
			t.Fatalf("the checkpoint %v passed a row in flight", at)
		}
		b.answer(outbox.Outcome{}, row(1))
		b.tracker.Settled(b.acks.take())
		if at, _, moved := b.tracker.Checkpoint(); !moved || at.Offset != 200 {
			t.Fatalf("checkpoint %v %v", at, moved)
		}
	})
}

func TestRowsThatAreNotDueOrNotPendingAreDeferred(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		commit := time.Now()
		txn := b.txn(
			row(1, func(m *outbox.Message) { m.DueAt = commit.Add(time.Minute) }),
			row(2, func(m *outbox.Message) { m.DueAt = commit.Add(time.Second) }),
			row(3, func(m *outbox.Message) { m.Status = outbox.Held }),
		)
		txn.CommittedAt = commit
		if err := b.Offer(b.ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.wantSent("2")
		b.tracker.Settled(b.acks.take())
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != 100 {
			t.Fatalf("deferred rows hold the checkpoint at %v", at)
		}
	})
}

// C10, P3: rows of the recovery window are published only when the table still says PENDING and due.
func TestC10_CatchUpZoneAsksTheTable(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.table["1"] = outbox.Candidate{Status: outbox.Pending, RetryCount: 2}
		b.table["2"] = outbox.Candidate{Status: outbox.Sent}
		b.table["3"] = outbox.Candidate{Status: outbox.Pending, Waiting: true}
		b.table["4"] = outbox.Candidate{Status: outbox.Sending}
		if err := b.Connected(b.ctx, end(0), end(2)); err != nil {
			t.Fatal(err)
		}
		b.offer(row(1), row(2), row(3))
		b.wantSent()
		b.offer(row(4), row(5)) // the end of the window
		b.wantSent("1")
		if n := b.triggered(); n != 1 {
			t.Fatalf("%d triggers, want one for the row that was not found", n)
		}
		b.offer(row(6))
		b.wantSent("1", "6")
		b.tracker.Settled(b.acks.take())
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != 300 {
			t.Fatalf("checkpoint %v", at)
		}
	})
}

// Rows of the recovery window that wait for a silent log do not keep an open breaker from being probed.
func TestWindowRowsDoNotHoldUpTheProbe(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.table["6"] = outbox.Candidate{Status: outbox.Pending}
		b.sink.answer = nil
		rows := []*outbox.Message{row(1), row(2), row(3), row(4), row(5)}
		b.offer(rows...)
		b.recovery.Raise(end(9))
		b.offer(row(6))
		b.sink.set(func() { b.sink.answer = always(outbox.Outcome{}) })
		b.answer(outbox.Outcome{Class: outbox.ClassOutage}, rows...)
		if b.dispatch.Closed() {
			t.Fatal("the breaker is closed")
		}
		time.Sleep(5 * time.Second) // virtual
		b.wantSent("1", "2", "3", "4", "5", "1", "2", "3", "4", "5", "6")
	})
}

// Whoever waits for the one before it to find room can stop.
func TestOfferEndsWithItsContextBehindAnother(t *testing.T) {
	run(t, Config{MaxInFlight: 1}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1))
		first, stop := context.WithCancel(b.ctx)
		second, cancel := context.WithCancel(b.ctx)
		ended := make(chan error, 2)
		go func() { ended <- b.Offer(first, b.txn(row(2))) }()
		synctest.Wait()
		go func() { ended <- b.Offer(second, b.txn(row(3))) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the one behind ended with %v", err)
		}
		stop()
		<-ended
	})
}

func TestWindowRowsAreCheckedWhenTheLogFallsSilent(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.table["1"] = outbox.Candidate{Status: outbox.Pending}
		if err := b.Connected(b.ctx, end(0), end(9)); err != nil {
			t.Fatal(err)
		}
		b.offer(row(1))
		time.Sleep(2 * time.Second) // virtual
		b.wantSent("1")
	})
}

func TestBackPressureHoldsTheReader(t *testing.T) {
	run(t, Config{MaxInFlight: 2}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1), row(2))
		offered := make(chan error, 1)
		go func() { offered <- b.Offer(b.ctx, b.txn(row(3))) }()
		synctest.Wait()
		b.wantSent("1", "2")
		if b.dispatch.Room() {
			t.Fatal("back-pressure is not shown")
		}
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		if err := b.publish(ctx, row(9)); err == nil {
			t.Fatal("the sweep found room")
		}
		b.answer(outbox.Outcome{}, row(1))
		if err := <-offered; err != nil {
			t.Fatal(err)
		}
		b.wantSent("1", "2", "3")
	})
}
