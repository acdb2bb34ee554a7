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

// written runs an Acker with the usual times for a second, after do, and returns when each batch was written, and its rows.
func written(t *testing.T, do func(*bench)) (at []time.Duration, rows []int) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		begin := time.Now()
		var mu sync.Mutex
		w.onApply = func(_ context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			mu.Lock()
			defer mu.Unlock()
			at, rows = append(at, time.Since(begin).Truncate(time.Millisecond)), append(rows, len(batch))
			return nil, nil
		}
		b := run(t, build(w, Config{}))
		do(b)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
	return at, rows
}

func ms(list ...int) (out []time.Duration) {
	for _, n := range list {
		out = append(out, time.Duration(n)*time.Millisecond)
	}
	return out
}

// Sent rows that come one by one share a statement: their commits are what a low rate costs the database.
func TestFewSentRowsWaitForEachOther(t *testing.T) {
	at, rows := written(t, func(b *bench) {
		for n := range 100 {
			b.Add(completions(shop, n, n, outbox.ActionMarkSent))
			time.Sleep(4 * time.Millisecond)
		}
	})
	if len(rows) < 2 || len(rows) > 3 || at[0] != 200*time.Millisecond {
		t.Errorf("batches of %v rows after %v", rows, at)
	}
}

// Larger batches would delay the commits of the application: from 100 rows on they do not wait.
func TestSentRowsDoNotWaitForMoreThanAFew(t *testing.T) {
	at, rows := written(t, func(b *bench) {
		for n := range 200 {
			b.Add(completions(shop, n, n, outbox.ActionMarkSent))
			time.Sleep(time.Millisecond)
		}
	})
	if len(rows) != 2 || rows[0] < 100 || rows[0] > 120 || at[0] < 95*time.Millisecond || at[0] > 120*time.Millisecond {
		t.Errorf("batches of %v rows after %v", rows, at)
	}
}

// A row that is not sent, or that did not come from the log, takes those along that wait, and waits for 20 ms at most.
func TestAnUrgentRowIsWrittenSoon(t *testing.T) {
	for _, urgent := range []outbox.Completion{
		completion(shop, 2, outbox.ActionRetry), completion(shop, 2, outbox.ActionFail), completion(shop, 2, outbox.ActionRelease),
		{Identity: outbox.Identity{Table: shop, ID: "2"}, Action: outbox.ActionMarkSent, Path: outbox.PathSweep},
	} {
		at, rows := written(t, func(b *bench) {
			b.Add(completions(shop, 1, 1, outbox.ActionMarkSent))
			time.Sleep(50 * time.Millisecond)
			b.Add([]outbox.Completion{urgent})
		})
		if !slices.Equal(at, ms(50)) || !slices.Equal(rows, []int{2}) {
			t.Errorf("%v of path %v: batches of %v rows after %v", urgent.Action, urgent.Path, rows, at)
		}
	}
}

// Where a relay that takes over finds in the table alone what was sent, no row waits long.
func TestSentRowsOfSomeTablesAreWrittenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, build(newWorld(), Config{Soon: map[string]bool{shop: true}}))
		b.Add(completions(shop, 1, 7, outbox.ActionMarkSent))
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		if b.Pending() != 0 {
			t.Errorf("%d rows are pending", b.Pending())
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Of all tables together fewer than 500 rows wait for more than 20 ms: the pipeline takes no more rows while 10,000 wait.
func TestFewRowsOfManyTablesWaitLong(t *testing.T) {
	at, rows := written(t, func(b *bench) {
		for table := range 100 {
			b.Add(completions("shop.t"+strconv.Itoa(table), 1, 10, outbox.ActionMarkSent))
		}
	})
	soon, late := 0, 0
	for i, after := range at {
		switch {
		case after <= 45*time.Millisecond:
			soon += rows[i]
		case after <= 225*time.Millisecond:
			late += rows[i]
		default:
			t.Errorf("a batch of %d rows is written after %v", rows[i], after)
		}
	}
	if soon+late != 1000 || late >= writeBatch {
		t.Errorf("%d rows are written soon and %d late", soon, late)
	}
}

// A batch that failed and waits counts as before: other tables do not wait long because of it, and long again once it is written.
func TestRowsThatFailedCountAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var away, other atomic.Bool
		away.Store(true)
		w.onApply = func(_ context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if batch[0].Table != shop {
				other.Store(true)
			} else if away.Load() {
				return nil, errGone
			}
			return nil, nil
		}
		b := run(t, build(w, Config{}))
		b.Add(completions(shop, 1, 600, outbox.ActionMarkSent))
		time.Sleep(10 * time.Millisecond)
		for _, soon := range []bool{true, false} {
			other.Store(false)
			b.Add(completions("shop.other", 1, 1, outbox.ActionMarkSent))
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			if other.Load() != soon {
				t.Errorf("written soon: %v, want %v", !soon, soon)
			}
			away.Store(false)
			time.Sleep(10 * time.Second)
		}
		b.queues.mu.Lock()
		waiting := b.queues.waiting
		b.queues.mu.Unlock()
		if waiting != 0 || b.Pending() != 0 {
			t.Errorf("%d rows wait, %d are pending", waiting, b.Pending())
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Rows that are sent and wait for their batch settle. Those of a table that cannot be written, or that wait with rows that are not sent, do not count.
func TestRowsThatSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.onApply = func(_ context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if batch[0].Table == "shop.away" {
				return nil, errGone
			}
			return nil, nil
		}
		b := run(t, build(w, Config{}))
		check := func(table string, want int) {
			t.Helper()
			if n := b.Settling(table); n != want {
				t.Errorf("%d rows of %s settle, want %d", n, table, want)
			}
		}
		b.Add(completions(shop, 1, 7, outbox.ActionMarkSent))
		b.Add(completions("shop.away", 1, 7, outbox.ActionMarkSent))
		b.Add(completions("shop.mixed", 1, 7, outbox.ActionRetry))
		time.Sleep(30 * time.Millisecond)
		check(shop, 7)
		check("shop.away", 7)
		check("shop.mixed", 0)
		time.Sleep(300 * time.Millisecond)
		check(shop, 0)
		check("shop.away", 0)
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}
