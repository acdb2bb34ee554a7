package ack

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func every(string) bool { return true }

// held is a world whose tables answer when they are let go.
func held(w *world) (letGo func()) {
	gate := make(chan struct{})
	w.onApply = func(ctx context.Context, _ []outbox.Completion) ([]outbox.WriteError, error) {
		select {
		case <-gate:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return sync.OnceFunc(func() { close(gate) })
}

// While rows are left, all writers of all tables pause once in a while, so that MariaDB says where its log ends.
func TestAllWritersPauseWhileRowsAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var mu sync.Mutex
		running, quiet, longest, ended := 0, time.Now(), time.Duration(0), time.Now()
		var pauses []time.Time
		w.onApply = func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
			mu.Lock()
			if d := time.Since(quiet); running == 0 && d >= 75*time.Millisecond {
				pauses = append(pauses, time.Now())
			}
			running++
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			running--
			quiet, ended = time.Now(), time.Now()
			return nil, nil
		}
		b := run(t, build(w, Config{Leaves: every, Pause: 75 * time.Millisecond}))
		began := time.Now()
		const rows = 200_000
		for n := 0; n < rows; n += 500 {
			b.Add(completions([]string{shop, "shop.b"}[n/500%2], n, n+499, outbox.ActionMarkSent))
			time.Sleep(5 * time.Millisecond)
		}
		if b.queues.leftRows() < rows/3 {
			t.Fatalf("%d rows are left", b.queues.leftRows())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for n, at := range pauses {
			before := began
			if n > 0 {
				before = pauses[n-1]
			}
			longest = max(longest, at.Sub(before))
		}
		if whole := ended.Sub(began); whole < 3*time.Second || len(pauses) < int(whole/time.Second)-1 || longest > 1200*time.Millisecond || len(w.written) != rows {
			t.Errorf("%d pauses in %s, %s between two; %d rows of %d", len(pauses), whole, longest, len(w.written), rows)
		}
	})
}

// A drain sends more rows than its table takes: beyond some they wait in the journal alone, and all are written.
func TestManyRowsWaitInTheJournalAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		letGo := held(w)
		defer letGo()
		b := run(t, build(w, Config{Leaves: every, LeaveFrom: 1000}))
		const rows = 20_000
		for n := 0; n < rows; n += 250 {
			b.Add(completions(shop, n, n+249, outbox.ActionMarkSent))
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if left := b.queues.leftRows(); left < rows-3000 || left != len(w.left) {
			t.Errorf("%d rows are left in the journal, %d of them without an entry", left, len(w.left))
		}
		if b.Pending() != rows || b.Settling(shop) != rows {
			t.Errorf("%d rows are pending and %d settle, of %d", b.Pending(), b.Settling(shop), rows)
		}
		letGo()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.written) != rows || b.Pending() != 0 || b.queues.leftRows() != 0 || b.Settling(shop) != 0 {
			t.Errorf("%d rows are written, %d pending, %d left, of %d", len(w.written), b.Pending(), b.queues.leftRows(), rows)
		}
		for _, call := range w.trace() {
			if strings.HasPrefix(call, "broken") {
				t.Error(call)
			}
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		if w.journalled() != 0 {
			t.Errorf("%d rows are in the journal after all were written", w.journalled())
		}
	})
}

// Each row is left alone, whatever else its record has: rows of a sweep, rows that are sent again, and those of tables that leave none stay in memory.
func TestWhichRowsAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		letGo := held(w)
		defer letGo()
		b := run(t, build(w, Config{Leaves: func(table string) bool { return table == shop }, LeaveFrom: 100}))
		b.Add(completions(shop, 0, 999, outbox.ActionMarkSent))
		b.Add(completions("shop.other", 0, 999, outbox.ActionMarkSent))
		time.Sleep(50 * time.Millisecond)
		one := func(n int, change func(*outbox.Completion)) outbox.Completion {
			c := completion(shop, n, outbox.ActionMarkSent)
			change(&c)
			return c
		}
		b.Add([]outbox.Completion{
			one(2000, func(*outbox.Completion) {}),
			one(2001, func(c *outbox.Completion) { c.Path = outbox.PathSweep }),
			one(2002, func(c *outbox.Completion) { c.Sends = 2 }),
			one(2003, func(c *outbox.Completion) { c.TakenOver = true }),
			completion("shop.other", 2004, outbox.ActionMarkSent),
			completion("shop.third", 2005, outbox.ActionMarkSent),
			one(2006, func(*outbox.Completion) {}),
		})
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if got := w.everLeft; !slices.Equal(got, []string{"2000", "2006"}) {
			t.Errorf("left: %v", got)
		}
		letGo()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.written) != 2007 || b.Pending() != 0 {
			t.Errorf("%d rows are written, %d pending", len(w.written), b.Pending())
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A stop writes left rows as well; what it has no time for stays in the journal.
func TestStopWithLeftRows(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			letGo := held(w)
			defer letGo()
			b := run(t, build(w, Config{Leaves: every, LeaveFrom: 100}))
			for n := 0; n < 5000; n += 100 {
				b.Add(completions(shop, n, n+99, outbox.ActionMarkSent))
				time.Sleep(10 * time.Millisecond)
			}
			if !hangs {
				letGo()
			}
			if err := b.close(); err != nil {
				t.Fatal(err)
			}
			if rows, more := b.Unshown(10); hangs && (len(rows) != 10 || more != 4990) || !hangs && len(rows)+more != 0 {
				t.Errorf("a relay that takes over gets %d rows, and a count of %d more", len(rows), more)
			}
			switch {
			case hangs && (w.journalled() != 5000 || len(w.written) != 0):
				t.Errorf("%d rows are journalled, %d are written", w.journalled(), len(w.written))
			case hangs && b.logs.FilterMessageSnippet("5000 results not written before the stop").Len() != 1:
				t.Error(b.logs.All())
			case !hangs && (w.journalled() != 0 || len(w.written) != 5000):
				t.Errorf("%d rows are journalled, %d are written", w.journalled(), len(w.written))
			}
		})
	}
}

// Rows that an earlier process left are written although nothing else is.
func TestLeftByAnEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		rows := completions(shop, 1, 5000, outbox.ActionMarkSent)
		testMust(t, w.Commit(rows[:3000], nil, nil, 7))
		testMust(t, w.Commit(rows[3000:], nil, nil, 7))
		w.Leave(rows)
		b := build(w, Config{Leaves: every})
		b.Left(1, rows[:3000])
		b.Left(2, rows[3000:])
		if b.Pending() != 5000 {
			t.Errorf("%d rows are pending", b.Pending())
		}
		run(t, b)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.written) != 5000 || b.Pending() != 0 {
			t.Errorf("%d rows are written, %d pending", len(w.written), b.Pending())
		}
		testMust(t, b.close())
	})
}

// A journal that cannot be read ends the process: which rows are sent is not known any more.
func TestUnreadableJournalEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		broken := errors.New("the disk is gone")
		w.onSent = func() error { return broken }
		rows := completions(shop, 1, 10, outbox.ActionMarkSent)
		testMust(t, w.Commit(rows, nil, nil, 7))
		b := build(w, Config{Leaves: every})
		b.Left(1, rows)
		run(t, b)
		if err := <-b.end; !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}

// Tables that stop for a while, locked and refused rows, and rows that come one by one: all are written, whichever are left meanwhile.
func TestLeftRowsWithFailures(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			random, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			var mu sync.Mutex // of faults
			away := map[string]time.Time{}
			w.onApply = func(_ context.Context, batch []outbox.Completion) (list []outbox.WriteError, err error) {
				time.Sleep(time.Duration(len(batch)) * 50 * time.Microsecond) // not under mu: a bubble's clock does not move then
				mu.Lock()
				defer mu.Unlock()
				table := batch[0].Table
				if time.Now().Before(away[table]) {
					return nil, errors.New("the table is away")
				}
				if faults.IntN(10) == 0 {
					away[table] = time.Now().Add(time.Duration(faults.IntN(3000)) * time.Millisecond)
				}
				for _, c := range batch {
					if faults.IntN(500) == 0 {
						list = append(list, outbox.WriteError{Completion: c, Retryable: faults.IntN(2) == 0, Reason: "locked or refused"})
					}
				}
				return list, nil
			}
			b := run(t, build(w, Config{Leaves: every, LeaveFrom: 1 + random.IntN(400)}))
			tables := []string{shop, "shop.b", "shop.c"}
			n := 0
			for range 200 {
				table, more := tables[random.IntN(3)], random.IntN(300)
				b.Add(completions(table, n, n+more, outbox.ActionMarkSent))
				n += more + 1
				time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			}
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			if len(w.written) != n || b.Pending() != 0 || b.queues.leftRows() != 0 {
				t.Errorf("seed %d: %d rows are written of %d, %d pending, %d left", seed, len(w.written), n, b.Pending(), b.queues.leftRows())
			}
			for _, call := range w.trace() {
				if strings.HasPrefix(call, "broken") {
					t.Error(call)
				}
			}
			testMust(t, b.close())
			if w.journalled() != 0 {
				t.Errorf("seed %d: %d rows stay in the journal", seed, w.journalled())
			}
		})
	}
}

func testMust(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
