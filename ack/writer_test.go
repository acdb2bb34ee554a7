package ack

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

var errGone = errors.New("server has gone away")

func TestBatchesAreFullOrTwentyMillisecondsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var at []time.Time
		w.onApply = func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
			at = append(at, time.Now())
			return nil, nil
		}
		b := start(t, w)
		begin := time.Now()
		b.Add(completions(shop, 1, 600, outbox.ActionRetry))
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(w.applySizes, []int{500, 100}) {
			t.Fatalf("batches %v", w.applySizes)
		}
		if full, rest := at[0].Sub(begin), at[1].Sub(begin); full != 0 || rest != 20*time.Millisecond {
			t.Fatalf("the full batch left after %v, the rest after %v", full, rest)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestD07_BatchesAreInPrimaryKeyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld())
		for _, n := range []int{10, 9, 100, 2} {
			b.Add([]outbox.Completion{completion(shop, n, outbox.ActionFail)})
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		if first := b.trace()[0]; first != "apply [2 9 10 100] true" {
			t.Fatal(first)
		}
	})
}

func TestDatabaseAwayForAnHourThenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var away atomic.Bool
		away.Store(true)
		w.onApply = func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
			if away.Load() {
				return nil, errGone
			}
			return nil, nil
		}
		b := start(t, w)
		for n := range 3600 {
			b.Add([]outbox.Completion{completion(shop, n, outbox.ActionMarkSent)})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if w.journalled() != 3600 || b.Pending() != 3600 {
			t.Fatalf("the journal waited for the table: %d entries, pending %d", w.journalled(), b.Pending())
		}
		if errs := b.metric(t, "canal_outbox_ack_errors_total"); errs < 600 || errs > 1200 {
			t.Errorf("%v attempts in an hour: not about every five seconds", errs)
		}
		away.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(w.written) != 3600 || w.journalled() != 0 || b.Pending() != 0 {
			t.Fatalf("written %d, journal %d, pending %d", len(w.written), w.journalled(), b.Pending())
		}
		if n := b.logs.Len(); n != 2 {
			t.Errorf("%d log lines for one outage: %v", n, b.logs.All())
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// D08, D24: a table under ALTER refuses every update for a while; the other tables are written.
func TestD08_OneLockedTableHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.onApply = func(_ context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if batch[0].Table == "shop.locked" {
				return nil, errGone
			}
			return nil, nil
		}
		b := start(t, w)
		for n := range 100 {
			b.Add([]outbox.Completion{
				completion("shop.locked", n, outbox.ActionMarkSent), completion("shop.free", n, outbox.ActionMarkSent),
			})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if len(w.written) != 100 || b.Pending() != 100 {
			t.Fatalf("written %d of 100", len(w.written))
		}
		for id := range w.written {
			if id.Table != "shop.free" {
				t.Fatalf("written %v", id)
			}
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// D08: a statement without an answer, on a silent connection or behind a table lock, delays only its own table.
func TestD08_SilentTableDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		longest := time.Duration(0)
		w.onApply = func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if batch[0].Table == "shop.silent" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			for _, c := range batch {
				longest = max(longest, time.Since(c.Since))
			}
			return nil, nil
		}
		b := start(t, w)
		for n := range 600 {
			b.Add([]outbox.Completion{
				completion("shop.silent", n, outbox.ActionMarkSent), completion("shop.free", n, outbox.ActionMarkSent),
			})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if longest > 45*time.Millisecond || b.Pending() != 600 { // CommitWithin and WriteEvery
			t.Errorf("a row of the other table waited for %v, %d rows are pending", longest, b.Pending())
		}
		if n := b.queues.writers; n != 1 {
			t.Errorf("%d writers, one has something to write", n)
		}
		b.stop()
		time.Sleep(time.Minute)
		if err := <-b.end; err != nil {
			t.Fatal(err)
		}
	})
}

func refuse(ids ...string) func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
	return func(_ context.Context, batch []outbox.Completion) (out []outbox.WriteError, _ error) {
		for _, s := range batch {
			if slices.Contains(ids, s.ID) {
				out = append(out, outbox.WriteError{Completion: s, Reason: "Data too long for column 'broker_id'"})
			}
		}
		return out, nil
	}
}

func TestP8_UnwritableSentRowStaysInJournalAndRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.onApply = refuse("2")
		b := start(t, w)
		b.Add(completions(shop, 1, 3, outbox.ActionMarkSent))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		bad := completion(shop, 2, outbox.ActionMarkSent).Identity
		if w.written[bad] != 0 || len(w.written) != 2 || !w.journal[bad] || len(w.journal) != 1 {
			t.Fatalf("written %v, journal %v", w.written, w.journal)
		}
		if !slices.Equal(w.applySizes, []int{3}) || b.Pending() != 0 {
			t.Fatalf("applied %v, pending %d", w.applySizes, b.Pending())
		}
		if b.metric(t, "canal_outbox_unwritable_rows") != 1 {
			t.Error("no alarm in the metrics")
		}
		if s := b.Snapshot(); s.Unwritable != 1 || s.NewestUnwritable.ID != "2" {
			t.Errorf("snapshot %+v", s)
		}
		alarm := b.logs.FilterMessageSnippet("refuses to show").All()
		if len(alarm) != 1 || alarm[0].ContextMap()["id"] != "2" || alarm[0].ContextMap()["reason"] == "" {
			t.Errorf("logged %v", alarm)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestUnwritableRefusalIsDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.onApply = refuse("2")
		b := start(t, w)
		b.Add(completions(shop, 1, 3, outbox.ActionFail))
		time.Sleep(time.Second)
		synctest.Wait()
		wantCalls(t, b.trace(), "apply [1 2 3] true", "settled [1 2 3]", "written [1 2 3]")
		if b.metric(t, "canal_outbox_failed_total") != 2 || b.metric(t, "canal_outbox_unwritable_rows") != 0 {
			t.Error("an unwritten failure is counted as one")
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Rows for two statements are written as two concurrent statements, each with half of the keys, while that keeps them short. The
// halves are independent: each fails in a run of its own, while the other one meets a lock.
func TestFullBatchesGoSideBySide(t *testing.T) {
	for statement, want := range map[time.Duration]int64{5 * time.Millisecond: 2, 15 * time.Millisecond: 1} {
		sideBySide(t, statement, want, "600", "1400")
		sideBySide(t, statement, want, "1400", "600")
	}
}

// sideBySide lets a statement with one row fail, and the next one with another row find that row locked.
func sideBySide(t *testing.T, statement time.Duration, want int64, fails, locks string) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var atOnce, most, failures, locked atomic.Int64
		w.onApply = func(_ context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if len(batch) > 1 { // the locked row alone has its own writer
				most.Store(max(most.Load(), atOnce.Add(1)))
				defer atOnce.Add(-1)
			}
			time.Sleep(statement)
			for _, c := range batch {
				switch {
				case c.ID == fails && failures.Add(1) == 1:
					return nil, errGone
				case c.ID == locks && locked.Add(1) == 1:
					return []outbox.WriteError{{Completion: c, Retryable: true}}, nil
				}
			}
			return nil, nil
		}
		b := start(t, w)
		b.Add(completions(shop, 1, 500, outbox.ActionMarkSent)) // shows how long a statement takes
		time.Sleep(time.Second)
		b.Add(completions(shop, 501, 1500, outbox.ActionMarkSent))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.written) != 1500 || b.Pending() != 0 || w.journalled() != 0 {
			t.Fatalf("written %d, pending %d, in the journal %d", len(w.written), b.Pending(), w.journalled())
		}
		for id, times := range w.written {
			if times != 1 {
				t.Fatalf("%s was written %d times", id.ID, times)
			}
		}
		if most.Load() != want || failures.Load() != 2 || locked.Load() != 2 {
			t.Errorf("statements of %v: %d at once, want %d; batches %v, row %s was tried %d times, row %s %d times", statement, most.Load(), want,
				w.applySizes, fails, failures.Load(), locks, locked.Load())
		}
		for _, call := range b.trace() {
			if strings.HasPrefix(call, "broken") {
				t.Error(call)
			}
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}
