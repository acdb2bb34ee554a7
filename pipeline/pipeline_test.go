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

// An Offer that waits for an earlier Offer to find room can be cancelled.
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
