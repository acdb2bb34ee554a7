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

// lockedRows reports some rows as locked while held is true.
func lockedRows(held *atomic.Bool, ids ...string) func(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
	return func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
		if !held.Load() {
			return nil, nil
		}
		list, err := refuse(ids...)(ctx, batch)
		for i := range list {
			list[i].Retryable = true
		}
		return list, err
	}
}

// A lock on one row delays that row alone: it stays in the journal and in the registry, is retried with pauses, and is written
// when the lock is released.
func TestD07_LockedRowHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var held atomic.Bool
		held.Store(true)
		w.onApply = lockedRows(&held, "0")
		b := start(t, w)
		const n = 1000
		for i := range n {
			b.Add([]outbox.Completion{completion(shop, i, outbox.ActionMarkSent)})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if len(w.written) != n-1 || b.Pending() != 1 || w.written[completion(shop, 0, outbox.ActionMarkSent).Identity] != 0 {
			t.Fatalf("written %d of %d, %d pending", len(w.written), n, b.Pending())
		}
		if got := fmt.Sprint(b.Problems()); !strings.Contains(got, shop+": the statuses of 1 row(s) wait for locks") {
			t.Errorf("troubles: %s", got)
		}
		if got := b.metric(t, "canal_outbox_ack_locked"); got != 1 {
			t.Errorf("the metric shows %v locked rows", got)
		}
		if tries := len(w.applySizes) - n; tries < 10 || tries > 60 {
			t.Errorf("the locked row was tried %d times in 100 s", tries)
		}
		if got := b.logs.FilterMessageSnippet("another session holds the locks").Len(); got != 1 {
			t.Errorf("%d warnings", got)
		}
		held.Store(false)
		time.Sleep(10 * time.Second)
		if b.Pending() != 0 || w.journalled() != 0 || len(w.written) != n || len(b.Problems()) != 0 {
			t.Errorf("afterwards: %d pending, %d in the journal", b.Pending(), w.journalled())
		}
		if got := b.logs.FilterMessageSnippet("are free again").Len(); got != 1 {
			t.Errorf("%d messages that the locks are free", got)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A start writes the journal's rows and does not wait for a lock.
func TestD07_StartDoesNotWaitForALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var held atomic.Bool
		held.Store(true)
		w.onApply = lockedRows(&held, "3")
		b := build(w, Config{})
		entries := completions(shop, 1, 5, outbox.ActionMarkSent)
		for _, e := range entries {
			w.journal[e.Identity] = true
		}
		began := time.Now()
		if err := b.Replay(t.Context(), entries); err != nil || time.Since(began) > 0 {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if w.journalled() != 1 || b.Pending() != 1 {
			t.Fatalf("%d in the journal, %d pending", w.journalled(), b.Pending())
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { b.end <- b.Run(ctx) }()
		held.Store(false)
		time.Sleep(10 * time.Second)
		if w.journalled() != 0 || b.Pending() != 0 {
			t.Errorf("afterwards: %d in the journal, %d pending", w.journalled(), b.Pending())
		}
		stop()
		if err := <-b.end; err != nil {
			t.Fatal(err)
		}
	})
}

// A database that goes away while a row is locked is still logged.
func TestD07_OutageBesideALockIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var held, away atomic.Bool
		held.Store(true)
		w.onApply = func(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
			if away.Load() {
				return nil, errGone
			}
			return lockedRows(&held, "1")(ctx, batch)
		}
		b := start(t, w)
		b.Add(completions(shop, 1, 1, outbox.ActionMarkSent))
		time.Sleep(time.Second)
		away.Store(true)
		b.Add(completions(shop, 2, 2, outbox.ActionMarkSent))
		time.Sleep(time.Second)
		if got := b.logs.FilterMessageSnippet("cannot write statuses").Len(); got != 1 {
			t.Errorf("%d warnings", got)
		}
		if list := b.Problems(); len(list) != 2 || !strings.HasPrefix(list[0], shop+": the statuses of 1 row(s) cannot be written: "+errGone.Error()) {
			t.Errorf("troubles: %q", list)
		}
		away.Store(false)
		held.Store(false)
		if err := b.close(); err != nil || w.journalled() != 0 {
			t.Fatalf("%v, %d in the journal", err, w.journalled())
		}
	})
}

// Newly locked rows do not delay the next attempt at those that were locked before.
func TestD07_NewLockedRowsDoNotDelayOlderOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		free := time.Now().Add(3 * time.Second)
		w.onApply = func(_ context.Context, batch []outbox.Completion) (out []outbox.WriteError, _ error) {
			for _, c := range batch {
				if c.ID != "0" || time.Now().Before(free) {
					out = append(out, outbox.WriteError{Completion: c, Retryable: true})
				}
			}
			return out, nil
		}
		b := start(t, w)
		for i := range 400 { // for 20 s
			b.Add([]outbox.Completion{completion(shop, i, outbox.ActionMarkSent)})
			time.Sleep(50 * time.Millisecond)
		}
		synctest.Wait()
		if w.written[completion(shop, 0, outbox.ActionMarkSent).Identity] != 1 {
			t.Error("a row whose lock was free after 3 s is not written after 20 s")
		}
		b.stop()
		time.Sleep(15 * time.Second)
		<-b.end
	})
}
