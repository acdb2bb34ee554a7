package ack

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Status shows how many rows need an operator, and the newest of each kind with its reason.
func TestSnapshotNamesTheNewestProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var held atomic.Bool
		held.Store(true)
		w.onApply = func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			locked, _ := lockedRows(&held, "9")(ctx, batch)
			refused, err := refuse("3", "4")(ctx, batch)
			return append(locked, refused...), err
		}
		b := start(t, w)
		if s := b.Snapshot(); s != (Snapshot{}) {
			t.Fatalf("at the beginning: %+v", s)
		}
		failed := completions(shop, 1, 2, outbox.ActionFail)
		failed[1].Class, failed[1].Reason = outbox.ClassPermanent, "too large"
		b.Add(failed)
		b.Add(completions(shop, 3, 3, outbox.ActionFail)) // refused: it is not FAILED
		b.Add(completions(shop, 4, 4, outbox.ActionMarkSent))
		b.Add(completions(shop, 9, 9, outbox.ActionMarkSent))
		time.Sleep(time.Second)
		s := b.Snapshot()
		if s.Pending != 1 || s.Locked != 1 || s.Failed != 2 || s.Unwritable != 1 {
			t.Errorf("%+v", s)
		}
		if n := s.NewestFailed; n.Identity != failed[1].Identity || n.Class != outbox.ClassPermanent || n.Reason != "too large" || n.At.IsZero() {
			t.Errorf("newest failed row: %+v", n)
		}
		if n := s.NewestUnwritable; n.ID != "4" || n.Reason == "" || n.At.IsZero() {
			t.Errorf("newest unwritable row: %+v", n)
		}
		held.Store(false)
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Config.Failed is called with each row once the table shows it as FAILED, and with no other row.
func TestFailedRowsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var away atomic.Bool
		away.Store(true)
		w.onApply = func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if away.Load() {
				return nil, errors.New("connection lost")
			}
			return refuse("3")(ctx, batch)
		}
		b := build(w, Config{})
		var failed []outbox.Completion
		b.cfg.Failed = func(c outbox.Completion) { failed = append(failed, c) }
		ctx, stop := context.WithCancel(t.Context())
		b.stop = stop
		go func() { b.end <- b.Run(ctx) }()
		list := completions(shop, 1, 3, outbox.ActionFail)
		list[0].Topic, list[1].Action = "orders", outbox.ActionRetry
		b.Add(list)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(failed) > 0 {
			t.Errorf("reported before the table has it: %v", failed)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(failed) != 1 || failed[0] != list[0] {
			t.Errorf("reported: %v", failed)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// G21: a row of a table that has no code for FAILED is reported and counted as failed once; later refusals count as retries.
func TestG21_RepeatedFailureIsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := build(newWorld(), Config{})
		var failed []outbox.Completion
		b.cfg.Failed = func(c outbox.Completion) { failed = append(failed, c) }
		ctx, stop := context.WithCancel(t.Context())
		b.stop = stop
		go func() { b.end <- b.Run(ctx) }()
		list := completions(shop, 1, 2, outbox.ActionFail)
		list[1].Reported = true
		b.Add(list)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(failed) != 1 || failed[0] != list[0] {
			t.Errorf("reported: %v", failed)
		}
		if n := b.metric(t, "canal_outbox_failed_total"); n != 1 {
			t.Errorf("failed_total is %v", n)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}
