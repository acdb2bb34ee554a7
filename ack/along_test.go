package ack

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Rows that come one by one into many tables: the writer that waits for the first of them writes the others too, right afterwards.
func TestQuietTablesAreTakenAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var at, most atomic.Int32
		began := time.Now()
		var times []time.Duration // one statement at a time
		w.onApply = func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			times = append(times, time.Since(began))
			return nil, nil
		}
		b := start(t, w)
		const tables = 64
		for table := range tables {
			b.Add([]outbox.Completion{completion(fmt.Sprint("shop.t", table), 1, outbox.ActionRetry)})
			time.Sleep(150 * time.Microsecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(times) != tables || times[0] != 20*time.Millisecond || times[tables-1] != times[0] || most.Load() != 1 {
			t.Errorf("%d statements, %d at a time, after %v", len(times), most.Load(), times)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A table that gets no answer does not hold up those that its writer was to take along, and a table that fails among them is tried again.
func TestTablesThatAreTakenAlongAreNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		took, failed := map[string]time.Duration{}, false
		w.onApply = func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			switch table := batch[0].Table; {
			case table == "shop.silent":
				time.Sleep(5 * time.Second)
			case table == "shop.failing" && !failed:
				failed = true
				return nil, errGone
			default:
				took[table] = time.Since(batch[0].Since)
			}
			return nil, nil
		}
		b := start(t, w)
		for _, table := range []string{"shop.silent", "shop.a", "shop.failing", "shop.b"} {
			b.Add([]outbox.Completion{completion(table, 1, outbox.ActionRetry)})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		const most = lasting + 30*time.Millisecond
		if len(took) != 3 || took["shop.a"] > most || took["shop.b"] > most || b.Pending() != 1 {
			t.Errorf("rows were written after %v, %d wait", took, b.Pending())
		}
		if err := b.close(); err != nil || b.Pending() != 0 {
			t.Fatalf("%v, %d wait", err, b.Pending())
		}
	})
}

// Where tables wait for their turn, those that were to be taken along wait beside their writer, not behind it one after the other.
func TestTablesAreNotTakenAlongBesideBusyOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		const busy, quiet, each = 10, 30, 100 * time.Millisecond
		took := map[string]time.Duration{} // of quiet tables, whose statements take no time
		var mu sync.Mutex
		w.onApply = func(_ context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if strings.HasPrefix(batch[0].Table, "shop.busy") {
				time.Sleep(each)
				return nil, nil
			}
			mu.Lock()
			defer mu.Unlock()
			took[batch[0].Table] = time.Since(batch[0].Since)
			return nil, nil
		}
		b := start(t, w)
		for n := range 2000 {
			for table := range busy {
				b.Add([]outbox.Completion{completion(fmt.Sprint("shop.busy", table), n, outbox.ActionRetry)})
			}
			if n >= 1000 && n < 1000+quiet {
				b.Add([]outbox.Completion{completion(fmt.Sprint("shop.quiet", n), 1, outbox.ActionRetry)})
			}
			time.Sleep(1100 * time.Microsecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for table, d := range took {
			if d > (busy/writing+2)*each {
				t.Errorf("the row of %s waited for %v", table, d)
			}
		}
		if len(took) != quiet || b.Pending() != 0 {
			t.Errorf("%d of %d quiet tables were written, %d rows wait", len(took), quiet, b.Pending())
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A stop writes the tables that were to be taken along.
func TestAStopWritesTablesThatAreTakenAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld())
		for table := range 10 {
			b.Add([]outbox.Completion{completion(fmt.Sprint("shop.t", table), 1, outbox.ActionMarkSent)})
			time.Sleep(time.Millisecond)
		}
		if err := b.close(); err != nil || b.Pending() != 0 || b.journalled() != 0 {
			t.Errorf("%v, %d wait, %d in the journal", err, b.Pending(), b.journalled())
		}
	})
}
