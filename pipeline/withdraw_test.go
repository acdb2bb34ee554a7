package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A transaction whose offer ended while it waited for room comes again and does not hold the mark for ever.
func TestOfferThatEndedComesAgain(t *testing.T) {
	run(t, Config{MaxInFlight: 1}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1))
		txn := b.txn(row(2), row(3))
		ctx, cancel := context.WithCancel(b.ctx)
		ended := make(chan error)
		go func() { ended <- b.Offer(ctx, txn) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the offer ended with %v", err)
		}
		b.sink.set(func() { b.sink.answer = always(outbox.Outcome{}) })
		b.answer(outbox.Outcome{}, row(1))
		if err := b.Offer(b.ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.wantCompletions("1 sent", "2 sent", "3 sent")
		b.tracker.Settled(b.acks.take())
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != 200 {
			t.Fatalf("checkpoint %v", at)
		}
	})
}

// Rows of it that were taken over answer for it when it comes again.
func TestMarkWaitsForRowsOfAWithdrawnTransaction(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.answer = nil
		txn := b.txn(row(1))
		if err := b.Offer(b.ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.tracker.Withdraw(txn, 1, nil)
		if err := b.Offer(b.ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.offer()
		b.wantSent("1")
		if at, _, moved := b.tracker.Checkpoint(); moved {
			t.Fatalf("the checkpoint %v passed a row in flight", at)
		}
		b.answer(outbox.Outcome{}, row(1))
		b.tracker.Settled(b.acks.take())
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != 200 {
			t.Fatalf("checkpoint %v", at)
		}
	})
}

// A row that answered for a transaction which was then withdrawn answers for no other that gets its number.
func TestOwnerOfAWithdrawnTransactionSettlesNoOther(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1))
		if _, err := b.Rewind(); err != nil {
			t.Fatal(err)
		}
		b.next = 0
		again := b.txn(row(1))
		if err := b.Offer(b.ctx, again); err != nil {
			t.Fatal(err)
		}
		b.tracker.Withdraw(again, 2, nil)
		b.next = 0
		b.offer(row(2)) // another server's history, after a failover
		b.answer(outbox.Outcome{}, row(1))
		b.tracker.Settled(b.acks.take())
		if at, _, moved := b.tracker.Checkpoint(); moved {
			t.Fatalf("the checkpoint %v passed row 2 in flight", at)
		}
		b.answer(outbox.Outcome{}, row(2))
		b.tracker.Settled(b.acks.take())
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != 100 {
			t.Fatalf("checkpoint %v", at)
		}
	})
}

// Rewind goes back to the mark: what was offered behind it comes again, and rows in flight are not sent twice.
func TestRewindGoesBackToTheMark(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.offer(row(1))
		b.wantCompletions("1 sent")
		b.tracker.Settled(b.acks.take())
		b.sink.set(func() { b.sink.answer = nil })
		b.offer(row(2))
		b.offer(row(3))
		at, err := b.Rewind()
		if err != nil || at.Offset != 100 || at.GTIDs != uuid+":1" || b.tracker.Offered() != at {
			t.Fatalf("at %v %s, offered %v: %v", at, at.GTIDs, b.tracker.Offered(), err)
		}
		b.next = 1
		b.offer(row(2))
		b.offer(row(3))
		b.wantSent("1", "2", "3")
		b.answer(outbox.Outcome{}, row(3))
		b.tracker.Settled(b.acks.take())
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != 100 {
			t.Fatalf("the checkpoint %v passed a row in flight", at)
		}
		b.answer(outbox.Outcome{}, row(2))
		b.tracker.Settled(b.acks.take())
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != 300 || at.GTIDs != uuid+":1-3" {
			t.Fatalf("checkpoint %v", at)
		}
	})
}
