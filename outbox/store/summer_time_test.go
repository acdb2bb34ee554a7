package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// G17: a retry over the end of summer time waits as long as it is to wait, not an hour more, and not an hour less where its time comes twice.
func TestG17_ARetryOverTheEndOfSummerTime(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Seasons(b, b.DB, b.store.db)
		ids := b.Insert(2, "")
		testkit.SetClock(b, b.store.db, testkit.Autumn-600) // 02:50
		b.table.steady.Store(0)
		retry := func(id outbox.Identity, d time.Duration) {
			b.apply(outbox.Completion{Identity: id, Action: outbox.ActionRetry, Delay: d, Reason: "no"})
		}
		retry(ids[0], 3*time.Hour)
		b.Want(ids[0], "2026-10-25 04:50:00.000", "CAST(next_retry_time AS CHAR)")
		retry(ids[1], 30*time.Minute) // until 02:20, which is in the past before the change
		wait := func() time.Duration {
			b.Helper()
			found, err := b.store.States(b.Ctx, ids[1:])
			testkit.Must(b, err)
			if len(found) != 1 {
				b.Fatalf("found %+v", found)
			}
			if !found[0].Waiting {
				return 0
			}
			return time.Duration(found[0].DueInMilli) * time.Millisecond
		}
		if left := wait(); left < 25*time.Minute || left > 31*time.Minute {
			b.Errorf("before the change the row waits for %v", left)
		}
		for _, c := range b.due(table.DueQuery{Horizon: -time.Second}) {
			if c.Identity == ids[1] && !c.Waiting {
				b.Error("the sweep publishes the row before its time")
			}
		}
		testkit.SetClock(b, b.store.db, testkit.Autumn+1300) // 02:21, for the second time
		b.Want(ids[1], "1", "next_retry_time <= '2026-10-25 02:21:40'")
		if _, err := b.store.Retry(b.Ctx, ids[1:]); err != nil {
			b.Error(err)
		}
		if left := wait(); left != 0 {
			b.Errorf("after an operator's retry the row waits for %v", left)
		}
	})
}

// G22: a row has its grace over both ends of summer time, whether the server keeps its created_at in local time (DATETIME) or not (TIMESTAMP).
func TestG22_GraceOverTheEndsOfSummerTime(t *testing.T) {
	for _, kind := range []string{"DATETIME(3)", "TIMESTAMP(3)"} {
		t.Run(kind, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY created_at "+kind+" NOT NULL DEFAULT CURRENT_TIMESTAMP(3)")
				m := b.Mapping("outbox")
				m.Grace = 20 * time.Second
				b.LoadAsIs(m)
				testkit.Seasons(b, b.DB, b.store.db)
				for name, change := range map[string]int{"spring": testkit.Spring, "autumn": testkit.Autumn} {
					// made and read are seconds after the change.
					for _, c := range []struct{ made, read, left int }{
						{-30, -15, 5}, {-10, -1, 11}, {-10, 0, 10}, {-10, 5, 5}, {-10, 15, 0}, {-30, 5, 0}, {-600, 5, 0}, {1, 2, 19}, {1, 15, 6}, {1, 25, 0}, {30, 40, 10},
					} {
						testkit.SetClock(b, b.store.db, change+c.made)
						id := b.Insert(1, "")[0]
						_, err := b.store.db.Exec("UPDATE " + b.Quoted + " SET created_at=NOW(3) WHERE id=" + id.ID)
						testkit.Must(b, err)
						testkit.SetClock(b, b.store.db, change+c.read)
						found, err := b.store.States(b.Ctx, []outbox.Identity{id})
						testkit.Must(b, err)
						if len(found) != 1 || found[0].Waiting != (c.left > 0) || c.left > 0 && (found[0].DueInMilli < int64(c.left)*1000 || found[0].DueInMilli > int64(c.left+1)*1000) {
							b.Errorf("%s: a row made at %d s is read at %d s: %+v, want %d s of grace", name, c.made, c.read, found, c.left)
						}
						if published, _ := b.publishable(outbox.Candidate{Identity: id, Status: outbox.Pending}); (len(published) == 0) != (c.left > 0) {
							b.Errorf("%s: a row made at %d s, with %d s of grace left, is published: %v", name, c.made, c.left, len(published) > 0)
						}
					}
				}
			})
		})
	}
}

// G17: a row with its due time in a TIMESTAMP is not published before it, also in the hour of local time that comes twice, and whether a session in UTC or one
// in local time has written it.
func TestG17_ATimestampIsNotDueBeforeItsTime(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY next_retry_time TIMESTAMP(3) NULL")
		b.LoadAsIs(b.Mapping("outbox"))
		testkit.Seasons(b, b.DB, b.store.db)
		wants := func(id outbox.Identity, wait, longest int, what string) {
			b.Helper()
			found, err := b.store.States(b.Ctx, []outbox.Identity{id})
			testkit.Must(b, err)
			if len(found) != 1 || max(found[0].DueInMilli, 0) < int64(wait)*1000 || found[0].DueInMilli > int64(longest)*1000 {
				b.Errorf("%s: %+v, want a wait of %d to %d s", what, found, wait, longest)
			}
			if published, _ := b.publishable(outbox.Candidate{Identity: id, Status: outbox.Pending}); len(published) > 0 && wait > 0 || len(published) == 0 && longest == 0 {
				b.Errorf("%s: it is published: %v", what, len(published) > 0)
			}
		}
		const hour = 3600 // by which a row may be late around a change
		for name, change := range map[string]int{"spring": testkit.Spring, "autumn": testkit.Autumn} {
			// due and read are seconds after the change.
			for _, c := range []struct{ due, read, wait, late int }{
				{600, -600, 1200, hour},
				{600, -1, 601, hour},
				{600, 0, 600, 0},
				{600, 590, 10, 0},
				{600, 600, 0, 0},
				{600, 900, 0, 0},
				{-600, -700, 100, 0},
				{-600, -600, 0, 0},
				{-600, 100, 0, hour},
				{5000, -600, 5600, hour},
				{5000, 5001, 0, 0},
			} {
				id := b.Insert(1, "")[0]
				testkit.SetClock(b, b.store.db, change+c.read)
				for _, statement := range []string{"SET SESSION time_zone = '+00:00'", fmt.Sprintf("UPDATE %s SET next_retry_time=FROM_UNIXTIME(%d) WHERE id=%s", b.Quoted, change+c.due, id.ID)} {
					testkit.Exec(b, b.store.db, statement)
				}
				testkit.SetClock(b, b.store.db, change+c.read)
				wants(id, c.wait, c.wait+c.late, fmt.Sprintf("%s, due at %d s, read at %d s", name, c.due, c.read))
			}
			for _, read := range []int{-1800, 300, 7200} { // a retry in ten minutes, which the store writes in local time
				testkit.SetClock(b, b.store.db, change+read)
				id := b.Insert(1, "")[0]
				b.apply(outbox.Completion{Identity: id, Action: outbox.ActionRetry, Delay: 10 * time.Minute, Reason: "no"})
				wants(id, 600, 600, fmt.Sprintf("%s, refused at %d s", name, read))
			}
		}
	})
}
