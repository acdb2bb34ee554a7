package pipeline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

func TestRowsThatAreNotDueOrNotPendingAreDeferred(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		commit := time.Now()
		txn := b.Txn(
			flowtest.Row(1, func(m *outbox.Message) { m.DueAt = commit.Add(time.Minute) }),
			flowtest.Row(2, func(m *outbox.Message) { m.DueAt = commit.Add(time.Second) }),
			flowtest.Row(3, func(m *outbox.Message) { m.Status = outbox.Held }),
		)
		txn.CommittedAt = commit
		if err := b.Offer(b.Ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.WantSent("2")
		b.Tracker.Settled(b.Acks.Take())
		if at, _, _ := b.Tracker.Checkpoint(); at.Offset != 100 {
			t.Fatalf("deferred rows hold the checkpoint at %v", at)
		}
	})
}

// An Offer that waits for an earlier Offer to find room can be cancelled.
func TestOfferEndsWithItsContextBehindAnother(t *testing.T) {
	run(t, Config{MaxInFlight: 1}, func(b *bench) {
		b.Sink.Answer = nil
		b.OfferRows(flowtest.Row(1))
		first, stop := context.WithCancel(b.Ctx)
		second, cancel := context.WithCancel(b.Ctx)
		ended := make(chan error, 2)
		go func() { ended <- b.Offer(first, b.Txn(flowtest.Row(2))) }()
		synctest.Wait()
		go func() { ended <- b.Offer(second, b.Txn(flowtest.Row(3))) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the one behind ended with %v", err)
		}
		stop()
		<-ended
	})
}

// C10, P3: rows of the recovery window are published only when the table still says PENDING and due.
func TestC10_CatchUpZoneAsksTheTable(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.SetRow("1", outbox.Candidate{Status: outbox.Pending, RetryCount: 2})
		b.SetRow("2", outbox.Candidate{Status: outbox.Sent})
		b.SetRow("3", outbox.Candidate{Status: outbox.Pending, Waiting: true, DueInMilli: 60_000})
		b.SetRow("4", outbox.Candidate{Status: outbox.Sending})
		if err := b.Connected(b.Ctx, flowtest.End(0), flowtest.End(2)); err != nil {
			t.Fatal(err)
		}
		b.OfferRows(flowtest.Row(1), flowtest.Row(2), flowtest.Row(3))
		b.WantSent()
		b.OfferRows(flowtest.Row(4), flowtest.Row(5)) // the end of the window
		b.WantSent("1")
		if n := b.Triggered(); n != 1 {
			t.Fatalf("%d triggers, want one for the row that was not found", n)
		}
		b.OfferRows(flowtest.Row(6))
		b.WantSent("1", "6")
		b.Tracker.Settled(b.Acks.Take())
		if at, _, _ := b.Tracker.Checkpoint(); at.Offset != 300 {
			t.Fatalf("checkpoint %v", at)
		}
	})
}

// Rows of the recovery window keep the bounds, too: more than the bound is not handed over, however large the transaction (A15, A18).
func TestA15_A18_ALargeTransactionOfTheWindowKeepsTheBounds(t *testing.T) {
	const rowSize = 256 + 1000 + 20
	for name, cfg := range map[string]Config{"count": {MaxInFlight: 10}, "bytes": {MaxInFlightBytes: 10 * rowSize}} {
		t.Run(name, func(t *testing.T) {
			run(t, cfg, func(b *bench) {
				b.Sink.Set(func() { b.Sink.Answer = nil })
				txn := b.Txn(flowtest.RowsFrom(1, 600, 1000)...)
				b.Pending(txn.Messages...)
				if err := b.Connected(b.Ctx, outbox.Position{}, txn.End); err != nil {
					t.Fatal(err)
				}
				b.Background(func(ctx context.Context) error { return b.Offer(ctx, txn) })
				if s := b.Snapshot(); s.InFlight == 0 || s.InFlight > 11 || s.InFlightBytes > 11*rowSize { // the last one may pass the bound of bytes
					t.Fatalf("%d messages with %d bytes are in flight", s.InFlight, s.InFlightBytes)
				}
			})
		})
	}
}

// A sweep publishes what it has reserved and gives the rest back. It takes nothing while its intake is stopped, and nothing by an end of the log
// that was read before the position was set elsewhere.
func TestRowsOfASweep(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		if err := b.PublishRows(b.Ctx, flowtest.Row(1)); err != nil {
			t.Fatal(err)
		}
		b.WantCompletions("1 sent")
		free := b.ReserveRows(flowtest.Row(1), flowtest.Row(2), flowtest.Row(3))
		if len(free) != 2 || !b.Owns(free[0].Identity) {
			t.Fatalf("the sweep got %v", free)
		}
		b.Release(free[:1])
		b.SetBack(free[1:])
		if n := b.Triggered(); n != 1 || b.Snapshot().Owned != 1 {
			t.Errorf("%d triggers, %d rows are owned", n, b.Snapshot().Owned)
		}
		b.Pause(true)
		if _, err := b.Shown(outbox.LogEnd{}); b.Takes() || !errors.Is(err, outbox.ErrPaused) {
			t.Errorf("while the intake is stopped: %v", err)
		}
		b.Pause(false)
		old := outbox.LogEnd{Position: flowtest.End(1), Generation: b.Generation()}
		if _, err := b.Reset(outbox.MySQL, flowtest.End(5)); err != nil {
			t.Fatal(err)
		}
		if err := b.AwaitLog(b.Ctx, old, time.Minute); !b.Takes() || !errors.Is(err, outbox.ErrMoved) {
			t.Errorf("an end of the old log: %v", err)
		}
	})
}
