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

// A reader that starts again comes back to the mark. Rows of the window that wait for their look-up are left to the sweep, and come again.
func TestRewindLeavesTheWindow(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.offer()
		if err := b.Connected(b.ctx, end(1), end(9)); err != nil {
			t.Fatal(err)
		}
		b.offer(row(1))
		if at, err := b.Rewind(); err != nil || at.Offset != 200 || b.tracker.Offered() != at || b.Snapshot().Owned != 0 {
			t.Fatalf("at %v, offered %v, %d owned: %v", at, b.tracker.Offered(), b.Snapshot().Owned, err)
		}
		b.offer(row(1))
		b.wantSent("1")
	})
}
