package dispatch_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

func (b *bench) wantInFlight(most int, bytes int) {
	b.T.Helper()
	synctest.Wait()
	s := b.Snapshot()
	if s.InFlight+s.RetryBuffer > most || bytes > 0 && s.InFlightBytes > bytes {
		b.T.Fatalf("%d messages with %d bytes in flight and %d in the retry buffer, at most %d with %d bytes are allowed", s.InFlight, s.InFlightBytes, s.RetryBuffer, most, bytes)
	}
	if s.InFlight+s.RetryBuffer == 0 {
		b.T.Fatal("nothing is in flight")
	}
}

// More than the bound is not handed over, however large the transaction: the client below has no room for it, refuses it,
// and what follows would overtake it (A15, A18, B37).
func TestA15_A18_ALargeTransactionKeepsTheBounds(t *testing.T) {
	const rowSize = 256 + 1000 + 20
	for name, cfg := range map[string]Config{
		"count": {MaxInFlight: 10},
		"bytes": {MaxInFlightBytes: 10 * rowSize},
	} {
		most := 10
		if name == "bytes" {
			most = 11 // the last one may pass the bound
		}
		t.Run("log by "+name, func(t *testing.T) {
			run(t, cfg, func(b *bench) {
				b.Sink.Set(func() { b.Sink.Answer = nil })
				txn := b.Txn(flowtest.RowsFrom(1, 600, 1000)...)
				b.Background(func(ctx context.Context) error { return b.Offer(ctx, txn) })
				b.wantInFlight(most, 11*rowSize)
				b.Answer(outbox.Outcome{}, txn.Messages[:5]...)
				b.wantInFlight(most, 11*rowSize)
				if n := len(b.Sink.IDs()); n < 14 {
					t.Errorf("%d sent: room was given back and not used", n)
				}
			})
		})
		t.Run("sweep by "+name, func(t *testing.T) {
			run(t, cfg, func(b *bench) {
				b.Sink.Set(func() { b.Sink.Answer = nil })
				rows := flowtest.RowsFrom(1, 600, 1000)
				for _, m := range rows {
					m.Claim = "ours"
				}
				b.Background(func(ctx context.Context) error { return b.PublishRows(ctx, rows...) })
				b.wantInFlight(most, 11*rowSize)
			})
		})
	}
}

// A sweep over a backlog that MySQL confirms slowly leaves room for fresh rows: half of the rows that may wait for their status
// are not the sweep's to fill (P7, D17).
func TestP7_D17_TheSweepLeavesRoomForFreshRows(t *testing.T) {
	run(t, Config{MaxUnwritten: 100}, func(b *bench) {
		rows := flowtest.RowsFrom(1, 600, 10)
		for _, m := range rows {
			m.Claim, m.Path = "ours", outbox.PathSweep
		}
		b.Background(func(ctx context.Context) error { return b.PublishRows(ctx, rows...) })
		if s := b.Snapshot(); s.Unwritten == 0 || s.Unwritten >= 100 {
			t.Fatalf("%d rows of the sweep wait for their status", s.Unwritten)
		}
		before := len(b.Sink.IDs())
		b.OfferRows(flowtest.RowsFrom(1000, 10, 10)...) // does not block
		if got := len(b.Sink.IDs()) - before; got != 10 {
			t.Errorf("%d of 10 fresh rows were sent", got)
		}
		b.Tracker.Written(b.Acks.Take())
		synctest.Wait()
		if got := len(b.Sink.IDs()) - before - 10; got == 0 {
			t.Error("the sweep does not continue")
		}
		if s := b.Snapshot(); s.Unwritten == 0 || s.Unwritten >= 100 {
			t.Errorf("then %d rows wait for their status", s.Unwritten)
		}
	})
}

// Rows that become due now do not queue up behind a sweep that has all of its share, and leave room to fresh ones, too.
func TestP7_RowsThatAreDueHaveRoomBesideTheSweep(t *testing.T) {
	run(t, Config{MaxInFlight: 100, MaxUnwritten: 1000}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		from := func(path outbox.Path, first int) {
			rows := flowtest.RowsFrom(first, 200, 10)
			for _, m := range rows {
				m.Claim, m.Path = "ours", path
			}
			b.Background(func(ctx context.Context) error { return b.PublishRows(ctx, rows...) })
		}
		exactly := func(n int) {
			t.Helper()
			synctest.Wait()
			if got := b.Snapshot().InFlight; got != n {
				t.Fatalf("%d messages are in flight, want %d", got, n)
			}
		}
		from(outbox.PathSweep, 1)
		exactly(50)
		from(outbox.PathTimer, 1000)
		exactly(75)
		b.Background(func(ctx context.Context) error { return b.Offer(ctx, b.Txn(flowtest.RowsFrom(2000, 200, 10)...)) })
		exactly(100)
	})
}

// Messages of the retry buffer are in memory too, and go to the sink again all at once.
func TestTheRetryBufferTakesRoom(t *testing.T) {
	run(t, Config{MaxInFlight: 10}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		txn := b.Txn(flowtest.RowsFrom(1, 40, 10)...)
		b.Background(func(ctx context.Context) error { return b.Offer(ctx, txn) })
		away := outbox.Outcome{Class: outbox.ClassOutage, Reason: "its leader is away"}
		b.Answer(away, txn.Messages[:4]...) // not enough to open the breaker
		b.wantInFlight(10, 0)
		time.Sleep(time.Second) // they are sent again
		b.wantInFlight(10, 0)
	})
}

func TestBackPressureHoldsTheReader(t *testing.T) {
	run(t, Config{MaxInFlight: 2}, func(b *bench) {
		b.Sink.Answer = nil
		b.OfferRows(flowtest.Row(1), flowtest.Row(2))
		offered := make(chan error, 1)
		go func() { offered <- b.Offer(b.Ctx, b.Txn(flowtest.Row(3))) }()
		synctest.Wait()
		b.WantSent("1", "2")
		if b.Dispatch.Room() {
			t.Fatal("back-pressure is not shown")
		}
		ctx, cancel := context.WithCancel(b.Ctx)
		cancel()
		if err := b.PublishRows(ctx, flowtest.Row(9)); err == nil {
			t.Fatal("the sweep found room")
		}
		b.Answer(outbox.Outcome{}, flowtest.Row(1))
		if err := <-offered; err != nil {
			t.Fatal(err)
		}
		b.WantSent("1", "2", "3")
	})
}

// Rows of a table whose statuses cannot be written take no room from others. Further rows of it are left to the sweep, but those of a sweep go: it could claim them.
func TestAStuckTableStopsNoOther(t *testing.T) {
	run(t, Config{MaxUnwritten: 8}, func(b *bench) {
		free := func(m *outbox.Message) { m.Table = "shop.free" }
		b.OfferRows(flowtest.RowsFrom(1, 8, 10)...)
		offered := make(chan error, 1)
		go func() {
			offered <- b.Offer(b.Ctx, b.Txn(flowtest.Row(11, free), flowtest.Row(12), flowtest.Row(13, free)))
		}()
		synctest.Wait()
		if n := len(b.Sink.IDs()); n != 8 || b.Dispatch.Room() {
			t.Fatalf("%d rows were sent", n)
		}
		b.Acks.Set(map[string]bool{"shop.t": true}, 8)
		b.Tracker.Written(nil) // an attempt has failed again
		select {
		case err := <-offered:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Hour):
			t.Fatal("the other table's rows wait")
		}
		synctest.Wait()
		if ids := b.Sink.IDs()[8:]; !slices.Equal(ids, []string{"11", "13"}) || b.Tracker.Owns(flowtest.Row(12).Identity) {
			t.Errorf("sent: %v", ids)
		}
		if n := b.Tracker.Activity.Deferred(); n != 1 {
			t.Errorf("%d rows are left to the sweep", n)
		}
		swept := flowtest.Row(14, func(m *outbox.Message) { m.Claim, m.Path = "ours", outbox.PathSweep })
		if err := b.PublishRows(b.Ctx, swept); err != nil {
			t.Fatal(err)
		}
		b.Acks.Set(nil, 0)
		b.Tracker.Written(b.Acks.Take())
		b.OfferRows(flowtest.Row(15))
		synctest.Wait()
		if ids := b.Sink.IDs()[10:]; !slices.Equal(ids, []string{"14", "15"}) {
			t.Errorf("sent: %v", ids)
		}
	})
}
