package pipeline

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// pending makes rows visible in the table.
func (b *bench) pending(rows ...*outbox.Message) {
	b.change(func(all fakeTable) {
		for _, m := range rows {
			all[m.ID] = outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.ShardingKey}
		}
	})
}

// offerDeferred offers a transaction in which the reader has deferred a row, and others not.
func (b *bench) offerDeferred(d outbox.Deferred, rows ...*outbox.Message) {
	b.t.Helper()
	txn := b.txn(rows...)
	txn.Deferred = []outbox.Deferred{d}
	if err := b.Offer(b.ctx, txn); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

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
				b.offer(row(1, key("a")))
				b.wantSent("1")
				unmapped, same, later, other := row(2, key("a")), row(3, key("a")), row(4, key("a")), row(5, key("b"))
				b.offerDeferred(d, same)
				b.offer(later, other)
				time.Sleep(3 * time.Second) // none of them is visible yet
				b.wantSent("1")
				b.pending(unmapped, same, later, other)
				for range 4 {
					time.Sleep(time.Second)
					b.sweep(later, other, same)
				}
				b.wantSent("1", "5")
				b.sweep(unmapped, same, later)
				b.wantSent("1", "5", "2", "3", "4")
				b.wrote()
				b.offer(row(6, key("a")))
				b.wantSent("1", "5", "2", "3", "4", "6") // from the log again
			})
		})
	}
}

// G06: a deferred row of another table, and one after which no row of the table comes, hold nothing up.
func TestG06_DeferredRowsAloneGoOut(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.offerDeferred(outbox.Deferred{Table: "shop.other", Cause: outbox.CauseUnmapped, Rows: 1})
		b.offer(row(1, key("a")))
		b.wantSent("1")
		unmapped := row(2, key("b"))
		b.pending(unmapped)
		b.offerDeferred(outbox.Deferred{Table: "shop.t", Cause: outbox.CauseUnmapped, Rows: 1})
		for range 3 {
			b.sweep(unmapped)
			time.Sleep(time.Second)
		}
		b.wantSent("1", "2")
	})
}

// G06: a row of the recovery window comes before a deferred one in the log and is looked up after it. Its sight does not show that the deferred
// row is visible.
func TestG06_ARowOfTheWindowBeforeADeferredOneIsNoWitness(t *testing.T) {
	for _, earlier := range []uint64{0, 1} { // deferred rows before the one of the window
		runOrdered(t, Config{}, func(b *bench) {
			deferred := outbox.Deferred{Table: "shop.t", Cause: outbox.CauseStatement, Rows: 1}
			if err := b.Connected(b.ctx, end(0), end(3+earlier)); err != nil {
				t.Fatal(err)
			}
			for range earlier {
				b.offerDeferred(deferred)
			}
			before, unmapped, later := row(1, key("b")), row(2, key("a")), row(3, key("a"))
			b.offer(before)
			b.offerDeferred(deferred)
			b.pending(before)
			b.offer(later) // the end of the window: the rows are looked up
			time.Sleep(2 * time.Second)
			b.pending(unmapped, later)
			if alone := b.sweep(later); len(alone) != 1 {
				t.Error("a sweep takes a row before the table was read for a deferred one")
			}
			time.Sleep(2 * time.Second)
			b.sweep(before, unmapped, later)
			b.wantSent("1", "2", "3")
		})
	}
}

// G07: the row that a key waits for is deleted, held or marked by hand, hours before its retry is due. The key continues within 15 s.
func TestG07_KeyContinuesWhenItsHeadIsGone(t *testing.T) {
	for name, end := range map[string]func(all fakeTable){
		"deleted": func(all fakeTable) { delete(all, "1") },
		"held":    func(all fakeTable) { all["1"] = outbox.Candidate{Status: outbox.Held} },
		"marked":  func(all fakeTable) { all["1"] = outbox.Candidate{Status: outbox.Sent} },
	} {
		t.Run(name, func(t *testing.T) {
			runOrdered(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: 2 * time.Hour, Max: 2 * time.Hour}}, func(b *bench) {
				b.sink.set(func() {
					b.sink.answer = func(m *outbox.Message) (o outbox.Outcome) {
						if m.ID == "1" {
							o.Class = outbox.ClassRefused
						}
						return o
					}
				})
				later := row(2, key("a"))
				b.pending(row(1, key("a")), later)
				b.offer(row(1, key("a")), later)
				b.wrote()
				time.Sleep(time.Minute)
				b.wantSent("1")
				if alone := b.sweep(later); len(alone) != 1 {
					t.Fatal("the key does not wait")
				}
				b.change(end)
				time.Sleep(15 * time.Second)
				if alone := b.sweep(later); len(alone) != 0 {
					t.Error("the key still waits after 15 s")
				}
			})
		})
	}
}

// G08: a row is in the retry buffer when the table is read, and the reading finds an earlier row of its key. The earlier one goes first.
func TestG08_TheGateIsAskedForASecondSend(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.sink.set(func() { b.sink.answer = nil })
		earlier, later, behind := row(3, key("a")), row(5, key("a")), row(6, key("a"))
		b.offer(later, behind)
		b.wantSent("5")
		b.pending(earlier, later, behind)
		b.dispatch.Unread()
		time.Sleep(time.Second)
		b.answer(outbox.Outcome{Class: outbox.ClassOutage}, later)
		time.Sleep(10 * time.Second)
		b.wantSent("5")
		b.sweep(earlier, later, behind)
		b.wantSent("5", "3")
		b.answer(outbox.Outcome{}, earlier)
		b.wantSent("5", "3", "5")
	})
}

// G08: the same for a scout, which is sent now and then while its partition is away.
func TestG08_TheGateIsAskedForAScout(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.sink.set(func() { b.sink.answer = nil })
		earlier, later := row(3, key("a")), row(5, key("a"))
		b.offer(later)
		b.pending(earlier, later)
		b.dispatch.Unread()
		time.Sleep(time.Second)
		b.answer(outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition}, later)
		time.Sleep(time.Minute)
		b.wantSent("5")
		b.sweep(earlier)
		b.wantSent("5", "3")
	})
}

// G08: rows behind one that is sent do not follow it while the table is to be read again.
func TestG08_TheGateIsAskedForTheNextRow(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		b.sink.set(func() { b.sink.answer = nil })
		first, second, earlier := row(4, key("a")), row(6, key("a")), row(5, key("a"))
		b.offer(first, second)
		b.pending(earlier, second)
		b.dispatch.Unread()
		b.answer(outbox.Outcome{}, first) // before the table is read
		time.Sleep(time.Second)
		b.wantSent("4")
		b.sweep(earlier, second)
		b.wantSent("4", "5")
	})
}

// While a table has more waiting rows than are remembered, the rows of any key may wait: a FAILED row with a key stays FAILED, one without a key
// is tried again.
func TestFailedRowIsNotTriedAgainAboveTheBound(t *testing.T) {
	runOrdered(t, Config{MaxWaiting: 1, MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Hour}}, func(b *bench) {
		b.sink.set(func() {
			b.sink.answer = func(*outbox.Message) outbox.Outcome { return outbox.Outcome{Class: outbox.ClassRefused} }
		})
		for i := range 3 {
			m := row(10+i, key(fmt.Sprint("k", i)))
			b.table[m.ID] = outbox.Candidate{Identity: m.Identity, Topic: m.Topic, Key: m.Key}
			b.offer(m)
			b.wrote()
		}
		keyed, keyless := row(1, key("other")), row(2)
		free, left := b.Reserve([]outbox.Candidate{
			{Identity: keyed.Identity, Topic: keyed.Topic, Key: keyed.ShardingKey, Status: outbox.Failed},
			{Identity: keyless.Identity, Topic: keyless.Topic, Status: outbox.Failed},
		})
		if len(free) != 1 || free[0].ID != "2" || len(left) != 1 || left[0].ID != "1" {
			t.Errorf("tried again %+v, left %+v", free, left)
		}
		b.Release(free)
	})
}
