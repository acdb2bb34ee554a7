package recovery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// Rows of the window wait until one table has a page for its query, so that many tables cost no query for a few rows each.
func TestWindowRowsOfManyTablesFillTheirPages(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.connect(0, 9)
		of := func(table, from, to int) (rows []*outbox.Message) {
			for id := from; id < to; id++ {
				rows = append(rows, flowtest.Row(id, func(m *outbox.Message) { m.Table = fmt.Sprint("shop.t", table) }))
			}
			return rows
		}
		for table := range 6 {
			b.OfferRows(of(table, 0, 499)...)
		}
		if n := b.Snapshot().Owned; n != 6*499 {
			t.Fatalf("%d rows wait for their look-up, want all", n)
		}
		b.OfferRows(of(3, 499, 500)...)
		if n := b.Snapshot().Owned; n != 0 { // the table has none of them
			t.Fatalf("%d rows wait though a page is full", n)
		}
	})
}

// Rows of the recovery window that wait for a silent log do not keep an open breaker from being probed.
func TestWindowRowsDoNotHoldUpTheProbe(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.SetRow("6", outbox.Candidate{Status: outbox.Pending})
		b.Sink.Answer = nil
		rows := []*outbox.Message{flowtest.Row(1), flowtest.Row(2), flowtest.Row(3), flowtest.Row(4), flowtest.Row(5)}
		b.OfferRows(rows...)
		b.Recovery.Raise(flowtest.End(9))
		b.OfferRows(flowtest.Row(6))
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{}) })
		b.Answer(outbox.Outcome{Class: outbox.ClassOutage}, rows...)
		if b.Dispatch.Closed() {
			t.Fatal("the breaker is closed")
		}
		time.Sleep(5 * time.Second) // virtual
		b.WantSent("1", "2", "3", "4", "5", "1", "2", "3", "4", "5", "6")
	})
}

func TestWindowRowsAreCheckedWhenTheLogFallsSilent(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.SetRow("1", outbox.Candidate{Status: outbox.Pending})
		b.connect(0, 9)
		b.OfferRows(flowtest.Row(1))
		time.Sleep(2 * time.Second) // virtual
		b.WantSent("1")
	})
}

// G06: a row of the recovery window comes before a deferred one in the log and is looked up after it. Its sight does not show that the deferred
// row is visible.
func TestG06_ARowOfTheWindowBeforeADeferredOneIsNoWitness(t *testing.T) {
	for _, earlier := range []uint64{0, 1} { // deferred rows before the one of the window
		runOrdered(t, Config{}, func(b *bench) {
			deferred := outbox.Deferred{Table: "shop.t", Cause: outbox.CauseStatement, Rows: 1}
			b.connect(0, 3+earlier)
			for range earlier {
				b.OfferDeferred(deferred)
			}
			before, unmapped, later := flowtest.Row(1, flowtest.Key("b")), flowtest.Row(2, flowtest.Key("a")), flowtest.Row(3, flowtest.Key("a"))
			b.OfferRows(before)
			b.OfferDeferred(deferred)
			b.Pending(before)
			b.OfferRows(later) // the end of the window: the rows are looked up
			time.Sleep(2 * time.Second)
			b.Pending(unmapped, later)
			if alone := b.Sweep(later); len(alone) != 1 {
				t.Error("a sweep takes a row before the table was read for a deferred one")
			}
			time.Sleep(2 * time.Second)
			b.Sweep(before, unmapped, later)
			b.WantSent("1", "2", "3")
		})
	}
}
