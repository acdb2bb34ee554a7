package store

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// autumn is when summer time ends in the zone of the test: 2026-10-25 03:00 becomes 02:00.
const autumn = 1792890000

// G17: a retry over the end of summer time waits as long as it is to wait, not an hour more, and not an hour less where its time comes twice.
func TestG17_ARetryOverTheEndOfSummerTime(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		for _, statement := range []string{
			"REPLACE INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (9001, 'N')",
			"REPLACE INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Test/Autumn', 9001)",
			"REPLACE INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation) VALUES (9001, 0, 7200, 1, 'SUM'), (9001, 1, 3600, 0, 'STD')",
			"REPLACE INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) VALUES (9001, 1000000000, 0), (9001, 1792890000, 1)",
		} {
			testkit.Exec(b, b.DB, statement)
		}
		b.store.db.SetMaxOpenConns(1) // whose clock is set
		clock := func(at int) {
			b.Helper()
			testkit.Exec(b, b.store.db, "SET SESSION time_zone = 'Test/Autumn'")
			_, err := b.store.db.Exec("SET SESSION timestamp = ?", at)
			testkit.Must(b, err)
			b.table.steady.Store(0)
		}
		ids := b.Insert(2, "")
		clock(autumn - 600) // 02:50
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
		clock(autumn + 1300) // 02:21, for the second time
		b.Want(ids[1], "1", "next_retry_time <= '2026-10-25 02:21:40'")
		if _, err := b.store.Retry(b.Ctx, ids[1:]); err != nil {
			b.Error(err)
		}
		if left := wait(); left != 0 {
			b.Errorf("after an operator's retry the row waits for %v", left)
		}
	})
}
