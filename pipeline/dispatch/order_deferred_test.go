package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// G06: the reader defers a row of a table with ordering: key. Later rows of its key wait for it, those of the same transaction too. The server
// shows the deferred row later than it logs it, and until then nothing that follows in the log goes out.
func TestG06_LaterRowsWaitForADeferredRow(t *testing.T) {
	for _, d := range []outbox.Deferred{
		{Table: "shop.t", Cause: outbox.CauseUnmapped, Rows: 1},
		{Table: "shop.t", Cause: outbox.CauseOversize, Rows: 1},
		{Table: "shop.t", Cause: outbox.CauseRewritten, Rows: 1},
		{Cause: outbox.CauseUnknown},
	} {
		t.Run(string(d.Cause), func(t *testing.T) {
			runOrdered(t, Config{}, func(b *bench) {
				b.OfferRows(flowtest.Row(1, flowtest.Key("a")))
				b.WantSent("1")
				unmapped, same, later, other := flowtest.Row(2, flowtest.Key("a")), flowtest.Row(3, flowtest.Key("a")), flowtest.Row(4, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("b"))
				b.OfferDeferred(d, same)
				b.OfferRows(later, other)
				time.Sleep(3 * time.Second) // none of them is visible yet
				b.WantSent("1")
				b.Pending(unmapped, same, later, other)
				for range 4 {
					time.Sleep(time.Second)
					b.Sweep(later, other, same)
				}
				b.WantSent("1", "5")
				b.Sweep(unmapped, same, later)
				b.WantSent("1", "5", "2", "3", "4")
				b.Wrote()
				b.OfferRows(flowtest.Row(6, flowtest.Key("a")))
				b.WantSent("1", "5", "2", "3", "4", "6") // from the log again
			})
		})
	}
}

// G06: a deferred row of another table, and one after which no row of the table comes, hold nothing up.
func TestG06_DeferredRowsAloneGoOut(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.OfferDeferred(outbox.Deferred{Table: "shop.other", Cause: outbox.CauseUnmapped, Rows: 1})
		b.OfferRows(flowtest.Row(1, flowtest.Key("a")))
		b.WantSent("1")
		unmapped := flowtest.Row(2, flowtest.Key("b"))
		b.Pending(unmapped)
		b.OfferDeferred(outbox.Deferred{Table: "shop.t", Cause: outbox.CauseUnmapped, Rows: 1})
		for range 3 {
			b.Sweep(unmapped)
			time.Sleep(time.Second)
		}
		b.WantSent("1", "2")
	})
}

// G07: the row that a key waits for is deleted, held or marked by hand, hours before its retry is due. The key continues within 15 s.
func TestG07_KeyContinuesWhenItsHeadIsGone(t *testing.T) {
	for name, end := range map[string]func(all flowtest.Table){
		"deleted": func(all flowtest.Table) { delete(all, "1") },
		"held":    func(all flowtest.Table) { all["1"] = outbox.Candidate{Status: outbox.Held} },
		"marked":  func(all flowtest.Table) { all["1"] = outbox.Candidate{Status: outbox.Sent} },
	} {
		t.Run(name, func(t *testing.T) {
			runOrdered(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: 2 * time.Hour, Max: 2 * time.Hour}}, func(b *bench) {
				b.Sink.Set(func() {
					b.Sink.Answer = func(m *outbox.Message) (o outbox.Outcome) {
						if m.ID == "1" {
							o.Class = outbox.ClassRefused
						}
						return o
					}
				})
				later := flowtest.Row(2, flowtest.Key("a"))
				b.Pending(flowtest.Row(1, flowtest.Key("a")), later)
				b.OfferRows(flowtest.Row(1, flowtest.Key("a")), later)
				b.Wrote()
				time.Sleep(time.Minute)
				b.WantSent("1")
				if alone := b.Sweep(later); len(alone) != 1 {
					t.Fatal("the key does not wait")
				}
				b.Change(end)
				time.Sleep(15 * time.Second)
				if alone := b.Sweep(later); len(alone) != 0 {
					t.Error("the key still waits after 15 s")
				}
			})
		})
	}
}

// G08: a row is in the retry buffer when the table is read, and the reading finds an earlier row of its key. The earlier one goes first.
func TestG08_TheOrderIsAskedForASecondSend(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		earlier, later, behind := flowtest.Row(3, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("a")), flowtest.Row(6, flowtest.Key("a"))
		b.OfferRows(later, behind)
		b.WantSent("5")
		b.Pending(earlier, later, behind)
		b.Dispatch.Unread()
		time.Sleep(time.Second)
		b.Answer(outbox.Outcome{Class: outbox.ClassOutage}, later)
		time.Sleep(10 * time.Second)
		b.WantSent("5")
		b.Sweep(earlier, later, behind)
		b.WantSent("5", "3")
		b.Answer(outbox.Outcome{}, earlier)
		b.WantSent("5", "3", "5")
	})
}

// G08: an earlier row that a sweep brings while a row is at the sink waits behind it, and goes before a second send of that row.
func TestG08_AnEarlierRowOfASweepGoesBeforeASecondSend(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		earlier, later := flowtest.Row(3, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("a"))
		b.OfferRows(later)
		b.WantSent("5")
		b.Pending(earlier, later)
		b.Sweep(earlier)
		b.WantSent("5")
		b.Answer(outbox.Outcome{Class: outbox.ClassOutage}, later)
		time.Sleep(10 * time.Second)
		b.WantSent("5")
		b.Wrote() // the claim of the row is given back
		b.Sweep(earlier, later)
		b.WantSent("5", "3")
		b.Answer(outbox.Outcome{}, earlier)
		b.WantSent("5", "3", "5")
	})
}

// A row in the retry buffer is left to the sweep, and no row is at the sink: the reader that waits for its room is woken, though no answer comes.
func TestRoomOfARowThatIsLeftInsteadOfSentAgain(t *testing.T) {
	runOrdered(t, Config{MaxInFlight: 1}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		earlier, later, next := flowtest.Row(3, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("a")), flowtest.Row(7)
		b.OfferRows(later)
		b.Pending(earlier, later)
		b.Dispatch.Unread()
		time.Sleep(time.Second)
		go b.OfferRows(next)
		b.Answer(outbox.Outcome{Class: outbox.ClassOutage}, later)
		time.Sleep(10 * time.Second)
		b.WantSent("5", "7")
	})
}

// G08: the same for a probe row, which is sent from time to time while its partition is away.
func TestG08_TheOrderIsAskedForAProbeRow(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		earlier, later := flowtest.Row(3, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("a"))
		b.OfferRows(later)
		b.Pending(earlier, later)
		b.Dispatch.Unread()
		time.Sleep(time.Second)
		b.Answer(outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition}, later)
		time.Sleep(time.Minute)
		b.WantSent("5")
		b.Sweep(earlier)
		b.WantSent("5", "3")
	})
}

// G08: rows behind one that is sent do not follow it while the table is to be read again.
func TestG08_TheOrderIsAskedForTheNextRow(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		first, second, earlier := flowtest.Row(4, flowtest.Key("a")), flowtest.Row(6, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("a"))
		b.OfferRows(first, second)
		b.Pending(earlier, second)
		b.Dispatch.Unread()
		b.Answer(outbox.Outcome{}, first) // before the table is read
		time.Sleep(time.Second)
		b.WantSent("4")
		b.Sweep(earlier, second)
		b.WantSent("4", "5")
	})
}

// While a table has more waiting rows than are remembered, the rows of any key may wait: a FAILED row with a key stays FAILED, one without a key
// is tried again.
func TestFailedRowIsNotTriedAgainAboveTheBound(t *testing.T) {
	runOrdered(t, Config{MaxWaiting: 1, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused}) })
		for i := range 3 {
			m := flowtest.Row(10+i, flowtest.Key(fmt.Sprint("k", i)))
			b.SetRow(m.ID, outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.Key})
			b.OfferRows(m)
			b.Wrote()
		}
		keyed, keyless := flowtest.Row(1, flowtest.Key("other")), flowtest.Row(2)
		free, left := b.Reserve([]outbox.Candidate{
			{Identity: keyed.Identity, Topic: keyed.Topic, Key: keyed.ShardingKey, Status: outbox.Failed},
			{Identity: keyless.Identity, Topic: keyless.Topic, Status: outbox.Failed},
		})
		if len(free) != 1 || free[0].ID != "2" || len(left) != 1 || left[0].ID != "1" {
			t.Errorf("tried again %+v, left %+v", free, left)
		}
		b.Tracker.Release(free)
	})
}
