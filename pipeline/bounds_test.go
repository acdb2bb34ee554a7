package pipeline

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// rowsFrom makes n rows of about size bytes each.
func rowsFrom(first, n, size int) []*outbox.Message {
	rows := make([]*outbox.Message, n)
	for i := range rows {
		rows[i] = row(first+i, func(m *outbox.Message) { m.Body = make([]byte, size) })
	}
	return rows
}

// background offers a transaction that does not fit; it ends with the test.
func (b *bench) background(offer func(context.Context) error) {
	ctx, cancel := context.WithCancel(b.ctx)
	b.t.Cleanup(cancel)
	go func() { _ = offer(ctx) }() // it is cut off at the end
	synctest.Wait()
}

func (b *bench) wantInFlight(most int, bytes int) {
	b.t.Helper()
	synctest.Wait()
	s := b.Snapshot()
	if s.InFlight+s.RetryBuffer > most || bytes > 0 && s.InFlightBytes > bytes {
		b.t.Fatalf("%d messages with %d bytes in flight and %d in the retry buffer, at most %d with %d bytes are allowed", s.InFlight, s.InFlightBytes, s.RetryBuffer, most, bytes)
	}
	if s.InFlight+s.RetryBuffer == 0 {
		b.t.Fatal("nothing is in flight")
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
				b.sink.set(func() { b.sink.answer = nil })
				txn := b.txn(rowsFrom(1, 600, 1000)...)
				b.background(func(ctx context.Context) error { return b.Offer(ctx, txn) })
				b.wantInFlight(most, 11*rowSize)
				b.answer(outbox.Outcome{}, txn.Messages[:5]...)
				b.wantInFlight(most, 11*rowSize)
				if n := len(b.sink.ids()); n < 14 {
					t.Errorf("%d sent: room was given back and not used", n)
				}
			})
		})
		t.Run("sweep by "+name, func(t *testing.T) {
			run(t, cfg, func(b *bench) {
				b.sink.set(func() { b.sink.answer = nil })
				rows := rowsFrom(1, 600, 1000)
				for _, m := range rows {
					m.Claim = "ours"
				}
				b.background(func(ctx context.Context) error { return b.publish(ctx, rows...) })
				b.wantInFlight(most, 11*rowSize)
			})
		})
		t.Run("recovery window by "+name, func(t *testing.T) {
			run(t, cfg, func(b *bench) {
				b.sink.set(func() { b.sink.answer = nil })
				txn := b.txn(rowsFrom(1, 600, 1000)...)
				for _, m := range txn.Messages {
					b.table[m.ID] = outbox.Candidate{Status: outbox.Pending}
				}
				if err := b.Connected(b.ctx, outbox.Position{}, txn.End); err != nil {
					t.Fatal(err)
				}
				b.background(func(ctx context.Context) error { return b.Offer(ctx, txn) })
				b.wantInFlight(most, 11*rowSize)
			})
		})
	}
}

// A sweep over a backlog that MySQL confirms slowly leaves room for fresh rows: half of the rows that may wait for their status
// are not the sweep's to fill (P7, D17).
func TestP7_D17_TheSweepLeavesRoomForFreshRows(t *testing.T) {
	run(t, Config{MaxUnwritten: 100}, func(b *bench) {
		rows := rowsFrom(1, 600, 10)
		for _, m := range rows {
			m.Claim, m.Path = "ours", outbox.PathSweep
		}
		b.background(func(ctx context.Context) error { return b.publish(ctx, rows...) })
		if s := b.Snapshot(); s.Unwritten == 0 || s.Unwritten >= 100 {
			t.Fatalf("%d rows of the sweep wait for their status", s.Unwritten)
		}
		before := len(b.sink.ids())
		b.offer(rowsFrom(1000, 10, 10)...) // does not block
		if got := len(b.sink.ids()) - before; got != 10 {
			t.Errorf("%d of 10 fresh rows were sent", got)
		}
		b.tracker.Written(b.acks.take())
		synctest.Wait()
		if got := len(b.sink.ids()) - before - 10; got == 0 {
			t.Error("the sweep does not go on")
		}
		if s := b.Snapshot(); s.Unwritten == 0 || s.Unwritten >= 100 {
			t.Errorf("then %d rows wait for their status", s.Unwritten)
		}
	})
}

// Rows that become due now do not queue up behind a sweep that has all of its share, and leave room to fresh ones, too.
func TestP7_RowsThatAreDueHaveRoomBesideTheSweep(t *testing.T) {
	run(t, Config{MaxInFlight: 100, MaxUnwritten: 1000}, func(b *bench) {
		b.sink.set(func() { b.sink.answer = nil })
		from := func(path outbox.Path, first int) {
			rows := rowsFrom(first, 200, 10)
			for _, m := range rows {
				m.Claim, m.Path = "ours", path
			}
			b.background(func(ctx context.Context) error { return b.publish(ctx, rows...) })
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
		b.background(func(ctx context.Context) error { return b.Offer(ctx, b.txn(rowsFrom(2000, 200, 10)...)) })
		exactly(100)
	})
}

// Messages of the retry buffer are in memory too, and go to the sink again all at once.
func TestTheRetryBufferTakesRoom(t *testing.T) {
	run(t, Config{MaxInFlight: 10}, func(b *bench) {
		b.sink.set(func() { b.sink.answer = nil })
		txn := b.txn(rowsFrom(1, 40, 10)...)
		b.background(func(ctx context.Context) error { return b.Offer(ctx, txn) })
		away := outbox.Outcome{Class: outbox.ClassOutage, Reason: "its leader is away"}
		b.answer(away, txn.Messages[:4]...) // not enough to open the breaker
		b.wantInFlight(10, 0)
		time.Sleep(time.Second) // they are sent again
		b.wantInFlight(10, 0)
	})
}

// Rows of the window wait until one table has a page for its query, so that many tables cost no query for a few rows each.
func TestWindowRowsOfManyTablesFillTheirPages(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		if err := b.Connected(b.ctx, end(0), end(9)); err != nil {
			t.Fatal(err)
		}
		of := func(table, from, to int) (rows []*outbox.Message) {
			for id := from; id < to; id++ {
				rows = append(rows, row(id, func(m *outbox.Message) { m.Table = fmt.Sprint("shop.t", table) }))
			}
			return rows
		}
		for table := range 6 {
			b.offer(of(table, 0, 499)...)
		}
		if n := b.Snapshot().Owned; n != 6*499 {
			t.Fatalf("%d rows wait for their look-up, want all", n)
		}
		b.offer(of(3, 499, 500)...)
		if n := b.Snapshot().Owned; n != 0 { // the table has none of them
			t.Fatalf("%d rows wait though a page is full", n)
		}
	})
}
