package dispatch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// P8: a table that cannot be read, such as a locked one, keeps the keys of no other table waiting: neither before a table was read nor when the rows are
// looked at that keys wait for. Its own keys wait, and continue when it can be read.
func TestP8_ATableThatCannotBeReadBlocksNoKeyOfAnother(t *testing.T) {
	locked := errors.New("lock wait timeout")
	cfg := Config{Ordered: []string{"shop.a", "shop.t"}, MaxRetry: 5, Backoff: outbox.Backoff{Base: 2 * time.Hour, Max: 2 * time.Hour}}
	run(t, cfg, func(b *bench) {
		b.Fail("shop.a", locked)
		b.Dispatch.Unread()
		time.Sleep(time.Second)
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Of(outbox.Outcome{Class: outbox.ClassRefused}, "2", "5") })
		a := []*outbox.Message{flowtest.Row(1, flowtest.In("shop.a"), flowtest.Key("k")), flowtest.Row(2, flowtest.In("shop.a"), flowtest.Key("k")), flowtest.Row(3, flowtest.In("shop.a"), flowtest.Key("k"))}
		other := []*outbox.Message{flowtest.Row(4, flowtest.Key("k")), flowtest.Row(5, flowtest.Key("k")), flowtest.Row(6, flowtest.Key("k"))}
		b.Pending(append(append([]*outbox.Message{}, a...), other...)...)
		b.OfferRows(a[0], other[0])
		b.WantSent("4") // of the other table nothing is known

		b.Fail("shop.a", nil)
		time.Sleep(20 * time.Second)
		b.Sweep(a[0])
		b.OfferRows(a[1], other[1]) // which the broker refuses
		b.WantSent("4", "1", "2", "5")
		b.Fail("shop.a", locked)
		b.Wrote()
		b.OfferRows(a[2], other[2])
		b.Change(func(rows flowtest.Table) { // by hand
			rows["2"], rows["5"] = outbox.Candidate{Status: outbox.Sent}, outbox.Candidate{Status: outbox.Sent}
		})
		goesOn := func(last *outbox.Message) {
			t.Helper()
			for range 40 {
				if time.Sleep(time.Second); len(b.Sweep(last)) == 0 {
					return
				}
			}
			t.Fatalf("the key of row %s waits", last.ID)
		}
		goesOn(other[2])
		if alone := b.Sweep(a[2]); len(alone) != 1 {
			t.Error("a key continues whose table cannot be read")
		}
		b.Fail("shop.a", nil)
		goesOn(a[2])
		b.WantSent("4", "1", "2", "5", "6", "3")
		if n := b.Logs.FilterMessageSnippet("cannot look at the rows that keys wait for").Len(); n != 2 {
			t.Errorf("%d lines in the log, want one for each time", n)
		}
	})
}
