package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// A transaction whose offer ended while it waited for room comes again and does not hold the mark for ever.
func TestOfferThatEndedComesAgain(t *testing.T) {
	run(t, Config{MaxInFlight: 1}, func(b *bench) {
		b.Sink.Answer = nil
		b.OfferRows(flowtest.Row(1))
		txn := b.Txn(flowtest.Row(2), flowtest.Row(3))
		ctx, cancel := context.WithCancel(b.Ctx)
		ended := make(chan error)
		go func() { ended <- b.Offer(ctx, txn) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the offer ended with %v", err)
		}
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{}) })
		b.Answer(outbox.Outcome{}, flowtest.Row(1))
		if err := b.Offer(b.Ctx, txn); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got := b.Acks.Completions()
		slices.Sort(got) // the sink answers the rows, which come to it one by one, at the same time
		if want := []string{"1 sent", "2 sent", "3 sent"}; !slices.Equal(got, want) {
			t.Fatalf("completions %v, want %v", got, want)
		}
		b.WantSent("1", "2", "3")
		b.Tracker.Settled(b.Acks.Take())
		if at, _, _ := b.Tracker.Checkpoint(); at.Offset != 200 {
			t.Fatalf("checkpoint %v", at)
		}
	})
}

// A reader that starts again comes back to the mark. Rows of the window that wait for their look-up are left to the sweep, and come again.
func TestRewindLeavesTheWindow(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.OfferRows()
		if err := b.Connected(b.Ctx, flowtest.End(1), flowtest.End(9)); err != nil {
			t.Fatal(err)
		}
		b.OfferRows(flowtest.Row(1))
		if at, err := b.Rewind(); err != nil || at.Offset != 200 || b.Tracker.Offered() != at || b.Snapshot().Owned != 0 {
			t.Fatalf("at %v, offered %v, %d owned: %v", at, b.Tracker.Offered(), b.Snapshot().Owned, err)
		}
		b.OfferRows(flowtest.Row(1))
		b.WantSent("1")
	})
}
