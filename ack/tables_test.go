package ack

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Many tables are written alternately: few statements at a time, and a batch grows while its table waits.
func TestManyTablesAreWrittenAlternately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var at, most atomic.Int32
		w.onApply = func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
			if n := at.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer at.Add(-1)
			time.Sleep(10 * time.Millisecond)
			return nil, nil
		}
		b := start(t, w)
		const tables, rows = 64, 200
		for n := range rows {
			for table := range tables {
				b.Add([]outbox.Completion{completion(fmt.Sprint("shop.t", table), n, outbox.ActionRetry)})
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if b.Pending() != 0 || most.Load() != writing {
			t.Errorf("%d rows wait, %d statements at a time", b.Pending(), most.Load())
		}
		if n := len(w.applySizes); n > tables*rows/20 {
			t.Errorf("%d statements for %d rows", n, tables*rows)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// D08: tables whose statements get no answer release the semaphore, first after a short time; later attempts do not use it.
func TestD08_SilentTablesReleaseTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var longest, later time.Duration
		began := time.Now()
		w.onApply = func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if strings.HasPrefix(batch[0].Table, "shop.silent") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			for _, c := range batch {
				longest = max(longest, time.Since(c.Since))
				if time.Since(began) > time.Minute {
					later = max(later, time.Since(c.Since))
				}
			}
			return nil, nil
		}
		b := start(t, w)
		for n := range 1200 {
			for table := range 3 * writing {
				b.Add([]outbox.Completion{completion(fmt.Sprint("shop.silent", table), n, outbox.ActionRetry)})
			}
			b.Add([]outbox.Completion{completion("shop.free", n, outbox.ActionRetry)})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if longest > 3*lasting+25*time.Millisecond || later > 25*time.Millisecond {
			t.Errorf("a row of the other table waited for %v, and for %v when the silent ones were known", longest, later)
		}
		b.stop()
		time.Sleep(time.Minute)
		if err := <-b.end; err != nil {
			t.Fatal(err)
		}
	})
}
