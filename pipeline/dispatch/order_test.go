package dispatch_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// D14: while a row is refused, the later rows of its key wait and others flow; then they go out in the order of their ids.
func TestD14_RefusedRowHoldsItsKeyAlone(t *testing.T) {
	runOrdered(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Minute}}, func(b *bench) {
		refuse := true
		b.Sink.Set(func() {
			b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
				if refuse && m.ID == "1" {
					return outbox.Outcome{Class: outbox.ClassRefused}
				}
				return outbox.Outcome{}
			}
		})
		b.OfferRows(flowtest.Row(1, flowtest.Key("a")), flowtest.Row(2, flowtest.Key("a")), flowtest.Row(3, flowtest.Key("b")), flowtest.Row(4))
		b.WantSent("1", "3", "4")
		b.Wrote()
		b.OfferRows(flowtest.Row(5, flowtest.Key("a")), flowtest.Row(6, flowtest.Key("b")))
		b.WantSent("1", "3", "4", "6")
		first := flowtest.Row(1).Identity
		for id, want := range map[int]bool{1: false, 2: true, 3: false, 5: true} {
			if got, why, waits := b.Behind(flowtest.Row(id).Identity); waits != want || waits && (got != first || why == "") {
				b.T.Errorf("row %d waits %v for %v: %s", id, waits, got, why)
			}
		}
		if alone := b.Sweep(flowtest.Row(2, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("a"))); fmt.Sprint(alone) != "[2 5]" {
			t.Fatalf("a sweep leaves %v alone", alone)
		}
		b.Sink.Set(func() { refuse = false })
		b.Sweep(flowtest.Row(1, flowtest.Key("a")), flowtest.Row(2, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("a")))
		b.WantSent("1", "3", "4", "6", "1", "2", "5")
		b.Wrote()
		b.OfferRows(flowtest.Row(7, flowtest.Key("a")))
		b.WantSent("1", "3", "4", "6", "1", "2", "5", "7")
	})
}

// Rows of one key follow each other at the broker; a row whose fate is not known yet is no reason to leave the next one to the sweep.
func TestRowsOfAKeyFollowOneAnother(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		rows := []*outbox.Message{flowtest.Row(1, flowtest.Key("a")), flowtest.Row(2, flowtest.Key("a")), flowtest.Row(3, flowtest.Key("b")), flowtest.Row(4, flowtest.Key("a"))}
		b.OfferRows(rows...)
		b.WantSent("1", "3")
		b.Answer(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster}, rows[0])
		time.Sleep(time.Second)
		b.WantSent("1", "3", "1")
		b.Answer(outbox.Outcome{}, rows[0])
		b.WantSent("1", "3", "1", "2")
		b.Answer(outbox.Outcome{}, rows[1])
		b.WantSent("1", "3", "1", "2", "4")
	})
}

// FAILED is final: the key continues, but not before the table shows it.
func TestD14_KeyContinuesBehindAFailedRow(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Of(outbox.Outcome{Class: outbox.ClassPermanent}, "1") })
		b.OfferRows(flowtest.Row(1, flowtest.Key("a")))
		b.OfferRows(flowtest.Row(2, flowtest.Key("a")))
		b.WantSent("1")
		b.SetRow("2", outbox.Candidate{})
		b.Wrote()
		asked := 0
		b.Change(func(flowtest.Table) { asked = len(b.Asked) })
		if asked == 0 {
			t.Fatal("no sweep is announced for row 2")
		}
		b.Sweep(flowtest.Row(2, flowtest.Key("a")))
		b.WantSent("1", "2")
	})
}

// Rows that are not final at the start make their keys wait before the first publish.
func TestD14_UnfinishedRowsOfAnEarlierRun(t *testing.T) {
	synctestTable := flowtest.Table{"1": {
		Identity: flowtest.Row(1).Identity, Topic: "orders", Key: "a", RetryCount: 1, Waiting: true, DueInMilli: 60_000,
	}}
	runTable(t, Config{Ordered: []string{"shop.t"}}, synctestTable, func(b *bench) {
		synctest.Wait()
		b.OfferRows(flowtest.Row(2, flowtest.Key("a")), flowtest.Row(3, flowtest.Key("b")))
		b.WantSent("3")
		b.Sweep(flowtest.Row(1, flowtest.Key("a")))
		b.WantSent("3", "1")
	})
}

// Above the bound only the sweep publishes rows of the table, in the order of their keys, until they are fewer.
func TestWaitingRowsAreBounded(t *testing.T) {
	runOrdered(t, Config{MaxWaiting: 10, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
		b.Sink.Set(func() {
			b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
				if m.Key != "free" {
					return outbox.Outcome{Class: outbox.ClassRefused}
				}
				return outbox.Outcome{}
			}
		})
		for i := range 50 {
			m := flowtest.Row(100+i, flowtest.Key(fmt.Sprint("k", i)))
			b.SetRow(m.ID, outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.Key})
			b.OfferRows(m)
			b.Wrote()
		}
		if n := b.Dispatch.State().WaitingRows; n > 20 {
			t.Fatalf("%d rows are remembered", n)
		}
		if !b.Dispatch.State().TableClosed {
			t.Fatal("the table is not closed")
		}
		free := flowtest.Row(999, flowtest.Key("free"))
		b.SetRow("999", outbox.Candidate{Identity: free.Identity, Topic: "orders", Key: "free"})
		b.OfferRows(free)
		for i := 0; len(b.Sweep(flowtest.Row(999, flowtest.Key("free")))) > 0; i++ { // its share is read
			if i > 1000 {
				t.Fatal("the share of a key is never read")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if sent := b.Sink.IDs(); sent[len(sent)-1] != "999" {
			t.Fatalf("sent %v", sent)
		}
	})
}

// Primary keys need not grow. Above the bound, too, a row is remembered that comes while one of a greater key is on its way: when that one is
// refused, a later row between the two does not go before it.
func TestRowsBeforeOneOnItsWayAreRemembered(t *testing.T) {
	runOrdered(t, Config{MaxWaiting: 1, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
		refused := outbox.Outcome{Class: outbox.ClassRefused}
		b.Sink.Set(func() { b.Sink.Answer = nil })
		all := []*outbox.Message{flowtest.Row(18, flowtest.Key("a")), flowtest.Row(30, flowtest.Key("x")), flowtest.Row(31, flowtest.Key("y"))}
		b.OfferRows(all...)
		b.WantSent("18", "30", "31")
		b.Answer(refused, all[1:]...) // more than are remembered
		b.OfferRows(flowtest.Row(1, flowtest.Key("a")))
		b.Answer(refused, all[0])
		b.OfferRows(flowtest.Row(7, flowtest.Key("a")))
		if alone := b.Sweep(flowtest.Row(7, flowtest.Key("a"))); len(alone) != 1 {
			b.T.Error("a sweep takes the third row of the key before the second")
		}
		b.WantSent("18", "30", "31")
	})
}

// The table is read while a row of a greater key is in memory, and there is no room, or the share does not hold the key: the
// rows that the table shows before that row are remembered, so that a later row of the log does not overtake them.
func TestAReadingWithoutRoomKeepsRowsBeforeOneInMemory(t *testing.T) {
	for _, name := range []string{"a", "b", "c", "d"} { // some are in the first share
		runOrdered(t, Config{MaxWaiting: 1, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
			b.Sink.Set(func() { b.Sink.Answer = nil })
			all := []*outbox.Message{flowtest.Row(18, flowtest.Key(name)), flowtest.Row(30, flowtest.Key("x")), flowtest.Row(31, flowtest.Key("y"))}
			b.OfferRows(all...)
			b.Answer(outbox.Outcome{Class: outbox.ClassRefused}, all[1:]...) // more than are remembered
			first, second, third := flowtest.Row(1, flowtest.Key(name)), flowtest.Row(7, flowtest.Key(name)), flowtest.Row(9, flowtest.Key(name))
			b.Pending(first, second, flowtest.Row(40, flowtest.Key("z")))
			b.OfferRows(first, second)
			b.Dispatch.Unread()
			if err := b.Dispatch.ReadTables(b.Ctx); err != nil {
				t.Fatal(err)
			}
			b.OfferRows(third)
			for _, one := range []*outbox.Message{third, second} {
				if alone := b.Sweep(one); len(alone) != 1 {
					b.T.Errorf("key %s: a sweep takes row %s before row 1", name, one.ID)
				}
			}
			b.Answer(outbox.Outcome{}, all[0])
			b.Sweep(first, second, third)
			b.WantSent("18", "30", "31", "1")
		})
	}
}

// A sweep has taken two rows of a key, and the first is refused for good: the second goes back to the table. If the table is read while it is
// on its way, more rows waiting than are remembered, it still comes before the third.
func TestARowOnItsWayBackIsRemembered(t *testing.T) {
	runOrdered(t, Config{MaxWaiting: 4, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
		refuse := flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused})
		b.Sink.Set(func() { b.Sink.Answer = refuse })
		for i := range 20 {
			m := flowtest.Row(100+i, flowtest.Key(fmt.Sprint("k", i)))
			b.SetRow(m.ID, outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.Key})
			b.OfferRows(m)
			b.Wrote()
		}
		b.Sink.Set(func() { b.Sink.Answer = nil })
		rows := []*outbox.Message{flowtest.Row(1, flowtest.Key("a")), flowtest.Row(2, flowtest.Key("a")), flowtest.Row(42, flowtest.Key("a"))}
		show := func(rows ...*outbox.Message) {
			for _, m := range rows {
				b.SetRow(m.ID, outbox.Candidate{Identity: m.Identity, Topic: "orders", Key: "a"})
			}
		}
		show(rows[:2]...)
		for i := 0; len(b.Sweep(rows[:2]...)) > 0; i++ { // the key's share is read
			if i > 1000 {
				t.Fatal("the share of a key is never read")
			}
			time.Sleep(100 * time.Millisecond)
		}
		b.Answer(outbox.Outcome{Class: outbox.ClassPermanent}, rows[0])
		show(rows[2])
		b.Dispatch.Unread()
		if err := b.Dispatch.ReadTables(b.Ctx); err != nil {
			t.Fatal(err)
		}
		b.Wrote()
		if alone := b.Sweep(rows[2]); len(alone) != 1 {
			t.Errorf("a sweep takes the third row before the second: sent %v", b.Sink.IDs())
		}
	})
}

// The log has skipped a row which the table shows later: it comes before the rows of its key that are in memory and not at the
// sink.
func TestARowThatIsFoundLateGoesFirst(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		rows := []*outbox.Message{flowtest.Row(9, flowtest.Key("a")), flowtest.Row(11, flowtest.Key("a"))}
		b.OfferRows(rows...)
		late := flowtest.Row(4, flowtest.Key("a"))
		b.SetRow("4", outbox.Candidate{Identity: late.Identity, Topic: "orders", Key: "a"})
		b.Dispatch.Unread()
		time.Sleep(time.Second)
		b.Answer(outbox.Outcome{}, rows[0])
		b.WantSent("9")
		if alone := b.Sweep(flowtest.Row(11, flowtest.Key("a"))); len(alone) != 1 {
			t.Error("a sweep takes the later row first")
		}
		b.Sweep(late)
		b.WantSent("9", "4")
	})
}

// The same for a row that a sweep brings while they wait: it comes behind those of lesser keys and before the others.
func TestARowThatASweepBringsLateGoesBeforeLaterOnes(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil })
		first, five, eleven, late := flowtest.Row(9, flowtest.Key("a")), flowtest.Row(5, flowtest.Key("a")), flowtest.Row(11, flowtest.Key("a")), flowtest.Row(10, flowtest.Key("a"))
		b.OfferRows(first, five, eleven)
		b.Sweep(late)
		b.WantSent("9")
		for i, m := range []*outbox.Message{first, five, late, eleven} {
			b.Answer(outbox.Outcome{}, m)
			b.WantSent([]string{"9", "5", "10", "11"}[:min(i+2, 4)]...)
		}
	})
}

// The order costs messages nothing that is collected as garbage while no key waits.
func TestOrderAllocatesNothingWhileNothingWaits(t *testing.T) {
	allocations := func(cfg Config) float64 {
		one := oneMessage(t, cfg)
		return testing.AllocsPerRun(5000, one)
	}
	if none, ordered := allocations(Config{}), allocations(Config{Ordered: []string{"shop.t"}}); ordered > none {
		t.Errorf("%v allocations for a message with ordering: key, %v without", ordered, none)
	}
}

func BenchmarkOrder(b *testing.B) {
	for name, cfg := range map[string]Config{"none": {}, "key": {Ordered: []string{"shop.t"}}} {
		b.Run(name, func(b *testing.B) {
			one := oneMessage(b, cfg)
			b.ReportAllocs()
			for b.Loop() {
				one()
			}
		})
	}
}

// A FAILED row that is tried again comes first of its key. While rows of the key wait it stays FAILED: several such rows, one after the other, would
// keep the others back for ever.
func TestFailedRowIsNotTriedAgainWhileItsKeyWaits(t *testing.T) {
	runOrdered(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Minute}}, func(b *bench) {
		refuse := true
		b.Sink.Set(func() {
			b.Sink.Answer = func(*outbox.Message) outbox.Outcome {
				if refuse {
					return outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"}
				}
				return outbox.Outcome{}
			}
		})
		failed := func(m *outbox.Message) outbox.Candidate {
			return outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.ShardingKey, Status: outbox.Failed}
		}
		again := func(want ...string) {
			b.T.Helper()
			free, _ := b.Reserve([]outbox.Candidate{failed(flowtest.Row(1, flowtest.Key("a"))), failed(flowtest.Row(2, flowtest.Key("b"))), failed(flowtest.Row(3))})
			var got []string
			for _, c := range free {
				got = append(got, c.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("tried again: %v, want %v", got, want)
			}
			b.Tracker.Release(free)
		}
		again("1", "2", "3")
		b.SetRow("4", outbox.Candidate{})
		b.OfferRows(flowtest.Row(4, flowtest.Key("a")))
		b.Wrote()
		again("2", "3") // 4 waits for its retry
		refuse = false
		if alone := b.Sweep(flowtest.Row(4, flowtest.Key("a"))); len(alone) > 0 {
			t.Fatalf("the sweep leaves %v alone", alone)
		}
		b.Wrote()
		again("1", "2", "3")
	})
}

// A FAILED row does not wait for another one of its key that is tried again: else the first ones of the table would be tried for ever, and
// never the last ones.
func TestFailedRowsOfAKeyDoNotWaitForEachOther(t *testing.T) {
	run(t, Config{MaxRetry: 1, Ordered: []string{flowtest.Row(1).Table}}, func(b *bench) {
		failed := func(n int) []outbox.Candidate {
			m := flowtest.Row(n, flowtest.Key("a"))
			return []outbox.Candidate{{Identity: m.Identity, Topic: m.Topic, Key: m.ShardingKey, Status: outbox.Failed}}
		}
		first, _ := b.Reserve(failed(1))
		b.Dispatch.SetBack(first)
		if keys, rows := b.Dispatch.State().WaitingKeys, b.Dispatch.State().WaitingRows; keys != 1 || rows != 1 {
			t.Fatalf("%d keys and %d rows wait, not those of the row that is PENDING again", keys, rows)
		}
		second, _ := b.Reserve(failed(2))
		if len(second) != 1 {
			t.Fatal("it waits for the first")
		}
		b.Dispatch.SetBack(second)
		b.SetRow("3", outbox.Candidate{})
		b.OfferRows(flowtest.Row(3, flowtest.Key("a"))) // which comes behind them
		if third, _ := b.Reserve(failed(4)); len(third) != 0 {
			t.Fatal("it comes before a row that was not FAILED")
		}
	})
}

// A row that was FAILED remains one over its attempts, and over those of the row before it, so that the others of its key do not wait for retries either.
func TestFailedRowsDoNotWaitForTheRetryOfAnother(t *testing.T) {
	for _, together := range []bool{false, true} {
		run(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Minute}, Ordered: []string{flowtest.Row(1).Table}}, func(b *bench) {
			b.Sink.Set(func() {
				b.Sink.Answer = func(*outbox.Message) outbox.Outcome { return outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"} }
			})
			rows := []*outbox.Message{flowtest.Row(1, flowtest.Key("a")), flowtest.Row(2, flowtest.Key("a"))}
			if !together {
				rows = rows[:1]
			}
			for _, one := range rows {
				failed, _ := b.Reserve([]outbox.Candidate{{Identity: one.Identity, Topic: one.Topic, Key: one.ShardingKey, Status: outbox.Failed}})
				b.Dispatch.SetBack(failed)
				b.SetRow(one.ID, outbox.Candidate{})
			}
			if alone := b.Sweep(rows...); len(alone) > 0 {
				t.Fatalf("the sweep leaves %v alone", alone)
			}
			b.Wrote() // that the first is to be tried again in a minute
			if s := b.Dispatch.State(); s.WaitingRows != len(rows) {
				t.Fatalf("%d rows wait, not those that were refused, or behind one", s.WaitingRows)
			}
			three := flowtest.Row(3, flowtest.Key("a"))
			if free, _ := b.Reserve([]outbox.Candidate{{Identity: three.Identity, Topic: three.Topic, Key: three.ShardingKey, Status: outbox.Failed}}); len(free) != 1 {
				t.Fatalf("%d: it waits for the retry", len(rows))
			}
		})
	}
}

// A row that is FAILED again waits until those behind it that were FAILED have been tried, too: the first rows of a key do not take all attempts.
func TestEachFailedRowOfAKeyHasItsTurn(t *testing.T) {
	run(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Minute}, Ordered: []string{flowtest.Row(1).Table}}, func(b *bench) {
		failed := func(n int) []outbox.Candidate {
			row := flowtest.Row(n, flowtest.Key("a"))
			free, _ := b.Reserve([]outbox.Candidate{{Identity: row.Identity, Topic: row.Topic, Key: row.ShardingKey, Status: outbox.Failed}})
			return free
		}
		two := failed(2)
		b.Dispatch.SetBack(two)
		if len(failed(1)) != 0 {
			t.Error("the first is set back again before the second is tried")
		}
		if len(failed(3)) != 1 {
			t.Error("the third waits for the second")
		}
	})
}
