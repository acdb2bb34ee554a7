package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// runOrdered is run with a table that keeps the order of its keys, which was read.
func runOrdered(t *testing.T, cfg Config, f func(*bench)) {
	cfg.Ordered = []string{"shop.t"}
	run(t, cfg, func(b *bench) {
		synctest.Wait()
		f(b)
	})
}

func key(name string) func(*outbox.Message) {
	return func(m *outbox.Message) { m.Key, m.ShardingKey = name, name }
}

// wrote makes what ack has been given a part of the table.
func (b *bench) wrote() {
	synctest.Wait()
	list := b.acks.take()
	b.change(func(all fakeTable) {
		for _, c := range list {
			state := all[c.ID]
			switch c.Action {
			case outbox.ActionMarkSent:
				state.Status = outbox.Sent
			case outbox.ActionFail:
				state.Status = outbox.Failed
			case outbox.ActionRetry:
				state.RetryCount, state.Waiting, state.DueInMilli = c.RetryCount+1, true, c.Delay.Milliseconds()
			}
			all[c.ID] = state
		}
	})
	b.tracker.Settled(list)
	b.tracker.Written(list)
	time.Sleep(time.Second) // the gate looks at the table
	synctest.Wait()
}

// sweep publishes rows as a sweep does, and returns those that it was told to leave alone.
func (b *bench) sweep(rows ...*outbox.Message) (alone []string) {
	b.t.Helper()
	var list []outbox.Candidate
	byID := map[string]*outbox.Message{}
	for _, m := range rows {
		byID[m.ID] = m
		list = append(list, outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.ShardingKey})
	}
	free, left := b.Reserve(list)
	for _, c := range left {
		alone = append(alone, c.ID)
	}
	var take []*outbox.Message
	for _, c := range free {
		m := byID[c.ID]
		m.Entry, m.Claim, m.Path = c.Entry, "token", outbox.PathSweep
		take = append(take, m)
	}
	if len(take) > 0 {
		if _, err := b.Publish(b.ctx, take, nil); err != nil {
			b.t.Fatal(err)
		}
	}
	synctest.Wait()
	return alone
}

// D14: while a row is refused, the later rows of its key wait and others flow; then they go out in the order of their ids.
func TestD14_RefusedRowHoldsItsKeyAlone(t *testing.T) {
	runOrdered(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Minute}}, func(b *bench) {
		refuse := true
		b.sink.set(func() {
			b.sink.answer = func(m *outbox.Message) outbox.Outcome {
				if refuse && m.ID == "1" {
					return outbox.Outcome{Class: outbox.ClassRefused}
				}
				return outbox.Outcome{}
			}
		})
		b.offer(row(1, key("a")), row(2, key("a")), row(3, key("b")), row(4))
		b.wantSent("1", "3", "4")
		b.wrote()
		b.offer(row(5, key("a")), row(6, key("b")))
		b.wantSent("1", "3", "4", "6")
		first := row(1).Identity
		for id, want := range map[int]bool{1: false, 2: true, 3: false, 5: true} {
			if got, why, waits := b.Behind(row(id).Identity); waits != want || waits && (got != first || why == "") {
				b.t.Errorf("row %d waits %v for %v: %s", id, waits, got, why)
			}
		}
		if alone := b.sweep(row(2, key("a")), row(5, key("a"))); fmt.Sprint(alone) != "[2 5]" {
			t.Fatalf("a sweep leaves %v alone", alone)
		}
		b.sink.set(func() { refuse = false })
		b.sweep(row(1, key("a")), row(2, key("a")), row(5, key("a")))
		b.wantSent("1", "3", "4", "6", "1", "2", "5")
		b.wrote()
		b.offer(row(7, key("a")))
		b.wantSent("1", "3", "4", "6", "1", "2", "5", "7")
	})
}

// Rows of one key follow each other at the broker; a row whose fate is not known yet is no reason to leave the next one to the sweep.
func TestRowsOfAKeyFollowOneAnother(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.sink.set(func() { b.sink.answer = nil })
		rows := []*outbox.Message{row(1, key("a")), row(2, key("a")), row(3, key("b")), row(4, key("a"))}
		b.offer(rows...)
		b.wantSent("1", "3")
		b.answer(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster}, rows[0])
		time.Sleep(time.Second)
		b.wantSent("1", "3", "1")
		b.answer(outbox.Outcome{}, rows[0])
		b.wantSent("1", "3", "1", "2")
		b.answer(outbox.Outcome{}, rows[1])
		b.wantSent("1", "3", "1", "2", "4")
	})
}

// FAILED is final: the key continues, but not before the table shows it.
func TestD14_KeyGoesOnBehindAFailedRow(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.sink.set(func() {
			b.sink.answer = func(m *outbox.Message) outbox.Outcome {
				if m.ID == "1" {
					return outbox.Outcome{Class: outbox.ClassPermanent}
				}
				return outbox.Outcome{}
			}
		})
		b.offer(row(1, key("a")))
		b.offer(row(2, key("a")))
		b.wantSent("1")
		b.table["2"] = outbox.Candidate{}
		b.wrote()
		b.mu.Lock()
		asked := len(b.asked)
		b.mu.Unlock()
		if asked == 0 {
			t.Fatal("nobody is told that row 2 may go")
		}
		b.sweep(row(2, key("a")))
		b.wantSent("1", "2")
	})
}

// Rows that are not final at the start make their keys wait before the first publish.
func TestD14_UnfinishedRowsOfAnEarlierRun(t *testing.T) {
	synctestTable := fakeTable{"1": {
		Identity: row(1).Identity, Topic: "orders", Key: "a", RetryCount: 1, Waiting: true, DueInMilli: 60_000,
	}}
	runTable(t, Config{Ordered: []string{"shop.t"}}, synctestTable, func(b *bench) {
		synctest.Wait()
		b.offer(row(2, key("a")), row(3, key("b")))
		b.wantSent("3")
		b.sweep(row(1, key("a")))
		b.wantSent("3", "1")
	})
}

// Above the bound only the sweep publishes rows of the table, in the order of their keys, until they are fewer.
func TestWaitingRowsAreBounded(t *testing.T) {
	runOrdered(t, Config{MaxWaiting: 10, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
		b.sink.set(func() {
			b.sink.answer = func(m *outbox.Message) outbox.Outcome {
				if m.Key != "free" {
					return outbox.Outcome{Class: outbox.ClassRefused}
				}
				return outbox.Outcome{}
			}
		})
		for i := range 50 {
			m := row(100+i, key(fmt.Sprint("k", i)))
			b.table[m.ID] = outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.Key}
			b.offer(m)
			b.wrote()
		}
		if n := b.dispatch.State().WaitingRows; n > 20 {
			t.Fatalf("%d rows are remembered", n)
		}
		free := row(999, key("free"))
		b.table["999"] = outbox.Candidate{Identity: free.Identity, Topic: "orders", Key: "free"}
		b.offer(free)
		for i := 0; len(b.sweep(row(999, key("free")))) > 0; i++ { // its turn comes
			if i > 1000 {
				t.Fatal("the turn of a key never comes")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if sent := b.sink.ids(); sent[len(sent)-1] != "999" {
			t.Fatalf("sent %v", sent)
		}
	})
}

// Primary keys need not grow. Above the bound, too, a row is remembered that comes while one of a greater key is on its way: when that one is
// refused, a later row between the two does not go before it.
func TestRowsBeforeOneOnItsWayAreRemembered(t *testing.T) {
	runOrdered(t, Config{MaxWaiting: 1, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
		refused := outbox.Outcome{Class: outbox.ClassRefused}
		b.sink.set(func() { b.sink.answer = nil })
		all := []*outbox.Message{row(18, key("a")), row(30, key("x")), row(31, key("y"))}
		b.offer(all...)
		b.wantSent("18", "30", "31")
		b.answer(refused, all[1:]...) // more than are remembered
		b.offer(row(1, key("a")))
		b.answer(refused, all[0])
		b.offer(row(7, key("a")))
		if alone := b.sweep(row(7, key("a"))); len(alone) != 1 {
			b.t.Error("a sweep takes the third row of the key before the second")
		}
		b.wantSent("18", "30", "31")
	})
}

// The table is read while a row of a greater key is in memory, and there is no room, or the share does not hold the key: the
// rows that the table shows before that row are remembered, so that a later row of the log does not overtake them.
func TestAReadingWithoutRoomKeepsRowsBeforeOneInHand(t *testing.T) {
	for _, name := range []string{"a", "b", "c", "d"} { // some have the first turn
		runOrdered(t, Config{MaxWaiting: 1, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
			b.sink.set(func() { b.sink.answer = nil })
			all := []*outbox.Message{row(18, key(name)), row(30, key("x")), row(31, key("y"))}
			b.offer(all...)
			b.answer(outbox.Outcome{Class: outbox.ClassRefused}, all[1:]...) // more than are remembered
			first, second, third := row(1, key(name)), row(7, key(name)), row(9, key(name))
			b.pending(first, second, row(40, key("z")))
			b.offer(first, second)
			b.dispatch.Unread()
			if err := b.dispatch.ReadTables(b.ctx); err != nil {
				t.Fatal(err)
			}
			b.offer(third)
			for _, one := range []*outbox.Message{third, second} {
				if alone := b.sweep(one); len(alone) != 1 {
					b.t.Errorf("key %s: a sweep takes row %s before row 1", name, one.ID)
				}
			}
			b.answer(outbox.Outcome{}, all[0])
			b.sweep(first, second, third)
			b.wantSent("18", "30", "31", "1")
		})
	}
}

// A sweep has taken two rows of a key, and the first is refused for good: the second goes back to the table. If the table is read while it is
// on its way, more rows waiting than are remembered, it still comes before the third.
func TestARowOnItsWayBackIsRemembered(t *testing.T) {
	runOrdered(t, Config{MaxWaiting: 4, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
		refuse := func(m *outbox.Message) outbox.Outcome { return outbox.Outcome{Class: outbox.ClassRefused} }
		b.sink.set(func() { b.sink.answer = refuse })
		for i := range 20 {
			m := row(100+i, key(fmt.Sprint("k", i)))
			b.table[m.ID] = outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.Key}
			b.offer(m)
			b.wrote()
		}
		b.sink.set(func() { b.sink.answer = nil })
		rows := []*outbox.Message{row(1, key("a")), row(2, key("a")), row(42, key("a"))}
		show := func(rows ...*outbox.Message) {
			for _, m := range rows {
				b.table[m.ID] = outbox.Candidate{Identity: m.Identity, Topic: "orders", Key: "a"}
			}
		}
		show(rows[:2]...)
		for i := 0; len(b.sweep(rows[:2]...)) > 0; i++ { // the key's turn comes
			if i > 1000 {
				t.Fatal("the turn of a key never comes")
			}
			time.Sleep(100 * time.Millisecond)
		}
		b.answer(outbox.Outcome{Class: outbox.ClassPermanent}, rows[0])
		show(rows[2])
		b.dispatch.Unread()
		if err := b.dispatch.ReadTables(b.ctx); err != nil {
			t.Fatal(err)
		}
		b.wrote()
		if alone := b.sweep(rows[2]); len(alone) != 1 {
			t.Errorf("a sweep takes the third row before the second: sent %v", b.sink.ids())
		}
	})
}

// The log has skipped a row which the table shows later: it comes before the rows of its key that are in memory and not at the
// sink.
func TestARowThatIsFoundLateGoesFirst(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.sink.set(func() { b.sink.answer = nil })
		rows := []*outbox.Message{row(9, key("a")), row(11, key("a"))}
		b.offer(rows...)
		late := row(4, key("a"))
		b.table["4"] = outbox.Candidate{Identity: late.Identity, Topic: "orders", Key: "a"}
		b.dispatch.Unread()
		time.Sleep(time.Second)
		b.answer(outbox.Outcome{}, rows[0])
		b.wantSent("9")
		if alone := b.sweep(row(11, key("a"))); len(alone) != 1 {
			t.Error("a sweep takes the later row first")
		}
		b.sweep(late)
		b.wantSent("9", "4")
	})
}

// The same for a row that a sweep brings while they wait: it comes behind those of lesser keys and before the others.
func TestARowThatASweepBringsLateGoesBeforeLaterOnes(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.sink.set(func() { b.sink.answer = nil })
		first, five, eleven, late := row(9, key("a")), row(5, key("a")), row(11, key("a")), row(10, key("a"))
		b.offer(first, five, eleven)
		b.sweep(late)
		b.wantSent("9")
		for i, m := range []*outbox.Message{first, five, late, eleven} {
			b.answer(outbox.Outcome{}, m)
			b.wantSent([]string{"9", "5", "10", "11"}[:min(i+2, 4)]...)
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
		b.sink.set(func() {
			b.sink.answer = func(*outbox.Message) outbox.Outcome {
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
			b.t.Helper()
			free, _ := b.Reserve([]outbox.Candidate{failed(row(1, key("a"))), failed(row(2, key("b"))), failed(row(3))})
			var got []string
			for _, c := range free {
				got = append(got, c.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("tried again: %v, want %v", got, want)
			}
			b.Release(free)
		}
		again("1", "2", "3")
		b.table["4"] = outbox.Candidate{}
		b.offer(row(4, key("a")))
		b.wrote()
		again("2", "3") // 4 waits for its retry
		refuse = false
		if alone := b.sweep(row(4, key("a"))); len(alone) > 0 {
			t.Fatalf("the sweep leaves %v alone", alone)
		}
		b.wrote()
		again("1", "2", "3")
	})
}
