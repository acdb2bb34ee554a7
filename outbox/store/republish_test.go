package store

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// Only a row that is SENT, and still the one that is meant, is set back; it is due at once and the sweep finds it.
func TestRepublish(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.Insert(2, "status=2, retry_count=3, next_retry_time=NOW() + INTERVAL 1 HOUR")
		for status := range 5 {
			if status != 2 {
				ids = append(ids, b.Insert(1, "retry_count=3, status="+string(rune('0'+status)))...)
			}
		}
		ids[1].MessageID = "order:another"
		n, err := b.store.Republish(b.Ctx, ids)
		testkit.Must(b, err)
		if n != 1 {
			b.Errorf("%d rows were set back, want 1", n)
		}
		b.Want(ids[0], "0|0|NULL|canal-outbox", "status", "retry_count", "next_retry_time", "updated_by")
		b.Want(ids[1], "2|3", "status", "retry_count")
		b.Want(ids[2], "0|3", "status", "retry_count")
		b.Want(ids[3], "1|3", "status", "retry_count")
		b.Want(ids[4], "3|3", "status", "retry_count")
		b.Want(ids[5], "4|3", "status", "retry_count")
	})
}

// Every layout's rows are found by the sweep again.
func TestRepublishInEachLayout(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		b.Add(l, 1)
		found := b.due(table.DueQuery{})
		if len(found) != 1 {
			b.Fatalf("due before: %+v", found)
		}
		b.apply(outbox.Completion{Identity: found[0].Identity, Action: outbox.ActionMarkSent})
		if due := b.due(table.DueQuery{}); len(due) != 0 {
			b.Fatalf("due when it is SENT: %+v", due)
		}
		if n, err := b.store.Republish(b.Ctx, []outbox.Identity{found[0].Identity}); n != 1 || err != nil {
			b.Errorf("%d rows set back, %v", n, err)
		}
		if due := b.due(table.DueQuery{}); len(due) != 1 || due[0].Identity != found[0].Identity {
			b.Errorf("due again: %+v", due)
		}
	})
}

// A retry never delivers a delayed message early, and lets a row that waits after an attempt keep the count of its attempts.
func TestRetryOfRowsThatWait(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		failed := b.Insert(1, "status=3, retry_count=5, fail_reason='no', next_retry_time=NOW() - INTERVAL 1 HOUR")[0]
		backOff := b.Insert(1, "retry_count=2, next_retry_time=NOW() + INTERVAL 1 HOUR")[0]
		delayed := b.Insert(1, "next_retry_time=NOW() + INTERVAL 1 HOUR")[0]
		claimed := b.Insert(1, "status=1, retry_count=2, last_exec_time=NOW()")[0]
		n, err := b.store.Retry(b.Ctx, []outbox.Identity{failed, backOff, delayed, claimed})
		testkit.Must(b, err)
		if n != 2 {
			b.Errorf("%d rows, want 2", n)
		}
		b.Want(failed, "0|0|NULL|no|canal-outbox", "status", "retry_count", "next_retry_time", "fail_reason", "updated_by")
		b.Want(backOff, "0|2|1", "status", "retry_count", "next_retry_time <= NOW()")
		b.Want(delayed, "0|0|0", "status", "retry_count", "next_retry_time <= NOW()")
		b.Want(claimed, "1|2", "status", "retry_count")
	})
}

// Rows that another session has locked are skipped at once, and the other rows are changed.
func TestP9_ChangesWaitForNoLock(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.MakeMoved(table.FailedSuffix)
		ids := b.Insert(3, "status=3, retry_count=5")
		tx, err := b.DB.Begin()
		testkit.Must(b, err)
		_, err = tx.Exec("UPDATE " + b.Quoted + " SET fail_reason='mine' WHERE id = " + ids[1].ID)
		testkit.Must(b, err)
		if n, err := b.store.Retry(b.Ctx, ids[:2]); n != 1 || err != nil {
			b.Errorf("%d rows were retried, %v", n, err)
		}
		if n, err := b.store.Discard(b.Ctx, ids[1:]); n != 1 || err != nil {
			b.Errorf("%d rows were discarded, %v", n, err)
		}
		testkit.Must(b, tx.Rollback())
		b.Want(ids[0], "0", "status")
		b.Want(ids[1], "3", "status")
	})
}
