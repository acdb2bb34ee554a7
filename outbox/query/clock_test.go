package query

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// D13: without a zone of its own a table has the server's, which Counts follows when it changes.
func TestD13_DefaultZone(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Cleanup(func() { testkit.Exec(b, b.DB, "SET GLOBAL time_zone = 'SYSTEM'") })
		for _, zone := range []string{"+05:00", "-03:30"} {
			testkit.Exec(b, b.DB, "SET GLOBAL time_zone = '"+zone+"'")
			b.Reopen()
			b.Use(b.Table)
			_, err := b.store.Counts(b.Ctx)
			testkit.Must(b, err)
			id := b.Insert(1, "next_retry_time=CONVERT_TZ(UTC_TIMESTAMP(3), '+00:00', '"+zone+"')")[0]
			stamp, err := b.store.Claim(b.Ctx, b.due(table.DueQuery{}))
			testkit.Must(b, err)
			messages, _, err := b.store.ReadBack(b.Ctx, stamp, []outbox.Identity{id})
			testkit.Must(b, err)
			if len(messages) != 1 || time.Since(messages[0].DueAt).Abs() > time.Minute {
				b.Errorf("%s: %+v", zone, messages)
			}
		}
	})
}

// D13: a due time behind the next change of the server's zone is read with the offset of then: a broker that delays the message gets it days before.
func TestD13_DefaultZoneThatChanges(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Seasons(b, b.DB, b.store.db)
		testkit.SetClock(b, b.store.db, testkit.Autumn-2*86400)
		_, err := b.store.Counts(b.Ctx)
		testkit.Must(b, err)
		for text, want := range map[string]int64{"2026-10-25 01:00:00": testkit.Autumn - 2*3600, "2026-10-25 09:00:00": testkit.Autumn + 7*3600} {
			if at, ok := table.ParseTime([]byte(text), b.table.Zone()); !ok || at.Unix() != want {
				b.Errorf("%s is read as %v, want %v", text, at.UTC(), time.Unix(want, 0).UTC())
			}
		}
	})
}

// D13: a row that was made before the end of summer time is not ahead of the clock behind it; one that was made far ahead is.
func TestD13_RowsOfBeforeTheEndOfSummerTime(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Seasons(b, b.DB, b.store.db)
		id := b.Insert(1, "")[0]
		for _, c := range []struct {
			made, asked int
			ahead       time.Duration
		}{{-60, 60, 0}, {-60, 3000, 0}, {-1800, -60, 0}, {3 * 3600, 60, 2*time.Hour - time.Minute}, {600, -60, 0}, {1800, 60, 0}} {
			testkit.SetClock(b, b.store.db, testkit.Autumn+c.made)
			testkit.Exec(b, b.store.db, "UPDATE "+b.Quoted+" SET created_at=NOW(3) WHERE id="+id.ID)
			testkit.SetClock(b, b.store.db, testkit.Autumn+c.asked)
			counts, err := b.store.Counts(b.Ctx)
			testkit.Must(b, err)
			if got := counts[0].CreatedAhead; got != c.ahead {
				b.Errorf("made at %d s, asked at %d s: %v ahead, want %v", c.made, c.asked, got, c.ahead)
			}
		}
	})
}

// D24: one store, several tables with the same ids.
func TestD24_SeveralTables(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		first, id := b.Table, b.Insert(1, "")[0]
		testkit.Exec(b, b.DB, fmt.Sprintf("CREATE TABLE `%s`.`t.2` LIKE %s", b.Schema, b.Quoted))
		m := b.Mapping("outbox")
		m.Name = "t.2"
		b.Quoted = fmt.Sprintf("`%s`.`t.2`", b.Schema)
		b.Load(m)
		b.Next--
		twin := b.Insert(1, "id="+id.ID)[0]
		b.over(first, b.Table)
		b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent}, outbox.Completion{Identity: twin, Action: outbox.ActionFail, Reason: "x"})
		states, err := b.store.States(b.Ctx, []outbox.Identity{id, twin})
		testkit.Must(b, err)
		for _, c := range states {
			if want := map[outbox.Identity]outbox.Status{id: outbox.Sent, twin: outbox.Failed}[c.Identity]; c.Status != want {
				b.Errorf("%v is %v, want %v", c.Identity, c.Status, want)
			}
		}
		if counts, err := b.store.Counts(b.Ctx); err != nil || len(counts) != 2 {
			b.Errorf("counts %+v, %v", counts, err)
		}
		if _, err := b.store.Claim(b.Ctx, states); err == nil {
			b.Error("rows of two tables were claimed in one call")
		}
	})
}
