package ack

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// refusesWhile refuses all rows while it is true.
func refusesWhile(bad *atomic.Bool) func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
	return func(_ context.Context, batch []outbox.Completion) (out []outbox.WriteError, _ error) {
		for _, c := range batch {
			if bad.Load() {
				out = append(out, outbox.WriteError{Completion: c, Reason: "a trigger"})
			}
		}
		return out, nil
	}
}

// A table that refuses sent rows and is repaired gets their statuses without a restart, however late.
func TestG32_RefusedStatusesAreWrittenWhenTheTableTakesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var bad atomic.Bool
		bad.Store(true)
		w.onApply = refusesWhile(&bad)
		b := start(t, w)
		for n := range 617 {
			b.Add([]outbox.Completion{completion(shop, n, outbox.ActionMarkSent)})
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if w.journalled() != 617 || len(w.written) != 0 || b.Pending() != 0 {
			t.Fatalf("%d in the journal, %d written, %d pending", w.journalled(), len(w.written), b.Pending())
		}
		if s := b.Snapshot(); s.Unwritable != 617 || s.NewestUnwritable == nil || b.metric(t, "canal_outbox_unwritable_rows") != 617 || b.metric(t, "canal_outbox_unwritable_total") != 617 {
			t.Errorf("snapshot %+v", s)
		}
		set := 0
		for _, call := range w.trace() {
			if strings.HasPrefix(call, "refused ") {
				set += len(strings.Fields(call)) - 1
			}
		}
		if set != 617 {
			t.Errorf("%d rows are set aside, want each once", set)
		}
		if n := len(w.applySizes); n > 617+6*60+60 {
			t.Errorf("%d attempts in six hours", n)
		}
		if rows, more := b.Unshown(600); len(rows) != 600 || more != 17 {
			t.Errorf("%d rows and %d more for one that takes over", len(rows), more)
		}
		bad.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if w.journalled() != 0 || len(w.written) != 617 || b.Pending() != 0 {
			t.Errorf("afterwards: %d in the journal, %d written, %d pending", w.journalled(), len(w.written), b.Pending())
		}
		if s := b.Snapshot(); s.Unwritable != 0 || s.NewestUnwritable != nil || b.metric(t, "canal_outbox_unwritable_rows") != 0 {
			t.Errorf("snapshot %+v", s)
		}
		if rows, more := b.Unshown(600); len(rows)+more != 0 {
			t.Errorf("%d rows and %d more for one that takes over", len(rows), more)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// One permanently bad row does not keep the status of other refused rows from being written.
func TestG32_OneBadRowHoldsUpNoOtherRefusedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var bad atomic.Bool
		bad.Store(true)
		w.onApply = func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if bad.Load() {
				return refusesWhile(&bad)(ctx, batch)
			}
			return refuse("3")(ctx, batch)
		}
		b := start(t, w)
		b.Add(completions(shop, 1, 1700, outbox.ActionMarkSent))
		time.Sleep(time.Hour)
		bad.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := b.Snapshot(); w.journalled() != 1 || len(w.written) != 1699 || s.Unwritable != 1 || s.NewestUnwritable.ID != "3" {
			t.Errorf("%d in the journal, %d written, snapshot %+v", w.journalled(), len(w.written), s)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A stop tries refused rows once more and does not wait for them.
func TestG32_StopTriesRefusedRowsOnceMore(t *testing.T) {
	for _, mended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			var bad atomic.Bool
			bad.Store(true)
			w.onApply = refusesWhile(&bad)
			b := start(t, w)
			b.Add(completions(shop, 1, 1200, outbox.ActionMarkSent))
			time.Sleep(time.Hour)
			bad.Store(!mended)
			began := time.Now()
			if err := b.close(); err != nil {
				t.Fatal(err)
			}
			want := map[bool]int{false: 1200, true: 0}[mended]
			if w.journalled() != want || time.Since(began) > time.Second {
				t.Errorf("mended %v: %d in the journal after %v", mended, w.journalled(), time.Since(began))
			}
		})
	}
}

// Refused rows cause one log line per table and minute, with their number and one of them.
func TestG43_OneLinePerTableAndMinute(t *testing.T) {
	for action, want := range map[outbox.Action][]int64{outbox.ActionMarkSent: {1, 617}, outbox.ActionRetry: {1, 617}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			var bad atomic.Bool
			bad.Store(true)
			w.onApply = refusesWhile(&bad)
			b := start(t, w)
			for n := range 617 {
				b.Add([]outbox.Completion{completion(shop, n, action)})
				time.Sleep(50 * time.Millisecond)
			}
			time.Sleep(time.Hour)
			if action != outbox.ActionMarkSent {
				b.Add([]outbox.Completion{completion(shop, 1, action)}) // the next sweep
				time.Sleep(time.Second)
			}
			var rows []int64
			for _, line := range b.logs.FilterMessageSnippet("the table refuses").All() {
				rows = append(rows, line.ContextMap()["rows"].(int64))
				if line.ContextMap()["id"] == "" {
					t.Errorf("no row in %v", line.ContextMap())
				}
			}
			if !slices.Equal(rows, want) {
				t.Errorf("%v: lines with %v rows, want %v", action, rows, want)
			}
			if err := b.close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Completions that are dropped because the lease is not valid are released to the sweep, and count as no attempt and no failure.
func TestG04_DroppedAttemptsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.onApply = func(_ context.Context, batch []outbox.Completion) (out []outbox.WriteError, _ error) {
			for _, c := range batch {
				if c.Action != outbox.ActionMarkSent {
					out = append(out, outbox.WriteError{Completion: c, Fenced: true})
				}
			}
			return out, nil
		}
		b := build(w, Config{})
		b.cfg.Failed = func(c outbox.Completion) { t.Errorf("an alert for %s", c.ID) }
		ctx, stop := context.WithCancel(t.Context())
		b.stop = stop
		go func() { b.end <- b.Run(ctx) }()
		b.Add(append(completions(shop, 1, 1, outbox.ActionRetry), completions(shop, 2, 2, outbox.ActionFail)...))
		b.Add(completions(shop, 3, 3, outbox.ActionMarkSent))
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(w.written) != 3 || len(w.settled) != 3 || b.Pending() != 0 || w.journalled() != 0 {
			t.Errorf("written %v, settled %v, %d pending", w.written, w.settled, b.Pending())
		}
		for _, name := range []string{"canal_outbox_retries_total", "canal_outbox_failed_total", "canal_outbox_unwritable_total"} {
			if n := b.metric(t, name); n != 0 {
				t.Errorf("%s is %v", name, n)
			}
		}
		if s := b.Snapshot(); s != (Snapshot{}) {
			t.Errorf("snapshot %+v", s)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}
