package ack

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A table that takes no statuses keeps those of no other table from being fetched, however many rows it has in memory and in the journal.
func TestAFullTableKeepsNoOtherFromItsLeftRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		gate := make(chan struct{})
		letGo := sync.OnceFunc(func() { close(gate) })
		defer letGo()
		w.onApply = func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if batch[0].Table == "shop.free" {
				time.Sleep(20 * time.Millisecond)
				return nil, nil
			}
			select {
			case <-gate:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		b := run(t, build(w, Config{Leaves: every}))
		away := []string{shop, "shop.b", "shop.c"} // with 2,000 rows each, more than leaveAll
		const each, free = 20_000, 100_000         // free: the first id of that table
		for n := 0; n < each; n += 50 {
			var list []outbox.Completion
			for _, table := range away {
				list = append(list, completions(table, n, n+49, outbox.ActionMarkSent)...)
			}
			list = append(list, completions("shop.free", free+n, free+n+49, outbox.ActionMarkSent)...)
			b.Add(list) // one record of all tables
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		leftOfFree := slices.ContainsFunc(w.everLeft, func(id string) bool { return len(id) == 6 })
		if w.writtenOf("shop.free") != each || b.Settling("shop.free") != 0 || !leftOfFree {
			t.Errorf("%d rows of the free table are written, %d settle; some were left: %t", w.writtenOf("shop.free"), b.Settling("shop.free"), leftOfFree)
		}
		if left := b.queues.leftRows(); left < 3*(each-3000) {
			t.Errorf("%d rows of the other tables are left", left)
		}
		letGo()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(w.written) != 4*each || b.Pending() != 0 || b.queues.leftRows() != 0 || len(b.queues.left.own) != 0 {
			t.Errorf("%d rows are written of %d, %d pending, %d left, %d lists", len(w.written), 4*each, b.Pending(), b.queues.leftRows(), len(b.queues.left.own))
		}
		testMust(t, b.close())
	})
}

// Another session holds the locks of all rows of a table: those that wait in the journal stay there, so that the memory has a bound.
func TestLeftRowsBehindLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var free atomic.Bool
		w.onApply = func(_ context.Context, batch []outbox.Completion) (list []outbox.WriteError, err error) {
			time.Sleep(20 * time.Millisecond)
			for _, c := range batch {
				if c.Table == shop && !free.Load() {
					list = append(list, outbox.WriteError{Completion: c, Retryable: true, Reason: "locked"})
				}
			}
			return list, nil
		}
		b := run(t, build(w, Config{Leaves: every}))
		const rows = 30_000
		for n := 0; n < rows; n += 500 {
			b.Add(completions(shop, n, n+499, outbox.ActionMarkSent))
			if n >= rows-2000 {
				b.Add(completions("shop.b", n, n+499, outbox.ActionMarkSent))
			}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if most := lockedMost + 2000 + writeBatch; b.queues.count(locked) > most || b.queues.leftRows() < rows-most {
			t.Errorf("%d rows are in memory, of %d at most; %d are left", b.queues.count(locked), most, b.queues.leftRows())
		}
		if w.writtenOf("shop.b") != 2000 {
			t.Errorf("%d rows of the other table are written", w.writtenOf("shop.b"))
		}
		free.Store(true)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if len(w.written) != rows+2000 || b.Pending() != 0 || b.queues.leftRows() != 0 {
			t.Errorf("%d rows are written of %d, %d pending, %d left", len(w.written), rows+2000, b.Pending(), b.queues.leftRows())
		}
		testMust(t, b.close())
	})
}

// Rows that their table refuses for ever keep no other row of it in the journal, however many they are.
func TestRefusedRowsKeepNoOtherInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		const bad = 20_000
		w.onApply = func(_ context.Context, batch []outbox.Completion) (list []outbox.WriteError, err error) {
			time.Sleep(20 * time.Millisecond)
			for _, c := range batch {
				if id, _ := strconv.Atoi(c.ID); id < bad {
					list = append(list, outbox.WriteError{Completion: c, Reason: "refused"})
				}
			}
			return list, nil
		}
		b := run(t, build(w, Config{Leaves: every}))
		add := func(from, to int) {
			for n := from; n < to; n += 500 {
				b.Add(completions(shop, n, n+499, outbox.ActionMarkSent))
				time.Sleep(5 * time.Millisecond)
			}
		}
		add(0, bad+10_000) // good rows behind them in the drain
		time.Sleep(5 * time.Minute)
		add(bad+10_000, bad+11_000) // and later
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.written) != 11_000 || b.queues.leftRows() != 0 || b.queues.count(refused) != bad {
			t.Errorf("%d good rows are written of 11000, %d are left, %d refused", len(w.written), b.queues.leftRows(), b.queues.count(refused))
		}
		testMust(t, b.close())
	})
}

func (w *world) writtenOf(table string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.written {
		if id.Table == table {
			n++
		}
	}
	return n
}
