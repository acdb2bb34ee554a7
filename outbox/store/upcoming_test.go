package store

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
)

// Rows that become due are shown by the database's clock, the first ones first, and no others, whatever index the table has.
func TestUpcoming(t *testing.T) {
	for _, layout := range tabletest.IndexLayouts {
		if layout.NoDue || layout.Key != "" {
			continue
		}
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.Reindex(layout)
				var want []outbox.Identity
				for _, set := range []string{"30 SECOND", "10 SECOND, retry_count=2", "-0.5 SECOND", "20 SECOND, retry_count=1"} {
					want = append(want, b.Insert(1, "next_retry_time=NOW(3) + INTERVAL "+set)...)
				}
				want = []outbox.Identity{want[2], want[1], want[3], want[0]}
				b.Insert(1, "")
				b.Insert(1, "next_retry_time=NOW(3) - INTERVAL 1 MINUTE")
				b.Insert(1, "next_retry_time=NOW(3) + INTERVAL 3 MINUTE")
				for _, status := range []string{"1", "2", "3", "9"} {
					b.Insert(1, "next_retry_time=NOW(3) + INTERVAL 10 SECOND, status="+status)
				}
				for _, limit := range []int{100, 4, 2, 1} {
					got, err := b.store.Upcoming(b.Ctx, b.table.Name(), -30*time.Second, time.Minute, limit)
					testkit.Must(b, err)
					var ids []outbox.Identity
					for _, c := range got {
						if c.Waiting != (c.DueInMilli > 0) || c.Topic == "" {
							b.Errorf("%+v", c)
						}
						ids = append(ids, c.Identity)
					}
					if !slices.Equal(ids, want[:min(limit, len(want))]) {
						b.Errorf("limit %d: got %v, want %v", limit, ids, want)
					}
				}
			})
		})
	}
}

// A due time of now does not shorten the grace, the time that the application has to publish a row itself: until then the row
// waits in every query.
func TestGraceGoesBeforeTheDueTime(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		m := b.Mapping("outbox")
		m.Grace = 20 * time.Second
		b.Load(m)
		const second = 1000
		want := map[outbox.Identity][2]int64{} // how long each waits, in milliseconds
		add := func(set string, least, most int64) {
			for _, id := range b.Insert(1, set) {
				want[id] = [2]int64{least, most}
			}
		}
		// More than is configured: created_at does not say when within its last millisecond the row was made, and a row is taken a little before its time.
		const grace = 20*second + 1 + earlyMicros/1000
		add("created_at=NOW(3), next_retry_time=NOW(3)", 10*second, grace)
		add("created_at=NOW(3), next_retry_time=NOW(3) + INTERVAL 40 SECOND", 30*second, 40*second)
		add("created_at=NOW(3) - INTERVAL 1 MINUTE, next_retry_time=NOW(3)", -10*second, 0)
		add("created_at=NOW(3) + INTERVAL 1 HOUR, next_retry_time=NOW(3)", -10*second, 0) // far ahead of the clock: of unknown age
		add("created_at=NOW(3) + INTERVAL 30 SECOND, next_retry_time=NOW(3)", 40*second, grace+30*second)
		rows := len(want)
		add("created_at=NOW(3)", 10*second, grace)
		add("created_at=NOW(3) - INTERVAL 1 MINUTE", 0, 0)
		check := func(what string, list []outbox.Candidate, n int) {
			b.Helper()
			if len(list) != n {
				b.Errorf("%s: %d rows, want %d", what, len(list), n)
			}
			for _, c := range list {
				if w := want[c.Identity]; c.DueInMilli < w[0] || c.DueInMilli > w[1] || c.Waiting != (c.DueInMilli > 0) {
					b.Errorf("%s: %+v, want a wait of %v", what, c, w)
				}
			}
		}
		states, err := b.store.States(b.Ctx, slices.Collect(maps.Keys(want)))
		testkit.Must(b, err)
		check("by key", states, len(want))
		upcoming, err := b.store.Upcoming(b.Ctx, b.table.Name(), -time.Minute, time.Minute, 100)
		testkit.Must(b, err)
		check("a look ahead", upcoming, rows)
		check("a sweep", b.due(table.DueQuery{Horizon: time.Minute}), len(want)-1) // without the young row that has no due time
	})
}

// Where the index has the due times in order, the look at the rows that become due is a range of it, however many wait.
func TestUpcomingReadsTheIndexInItsOrder(t *testing.T) {
	for _, layout := range tabletest.IndexLayouts {
		if layout.Strategy != table.ByDue && layout.Strategy != table.ByAttempts || layout.Key != "" {
			continue
		}
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.InsertMany(3000)
				testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET next_retry_time=NOW(3) + INTERVAL id SECOND")
				b.Reindex(layout)
				testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
				b.InOrder("a look", b.table.upcoming(table.AttemptCount{Known: true, Value: "0"}, -time.Second, time.Minute, 10), layout.Strategy, false)
			})
		})
	}
}

// G22: a column of whole seconds cuts up to a second off the time at which a row was made; its grace is longer by that, never shorter.
func TestG22_GraceIsNeverShort(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP")
		m := b.Mapping("outbox")
		m.Grace = 20 * time.Second
		b.LoadAsIs(m)
		ids := append(b.Insert(1, "created_at=NOW() - INTERVAL 10 SECOND"), b.Insert(1, "created_at=NOW() + INTERVAL 1 SECOND")...)
		found, err := b.store.States(b.Ctx, ids)
		testkit.Must(b, err)
		var least int64
		testkit.Must(b, b.DB.QueryRow("SELECT FLOOR(TIMESTAMPDIFF(MICROSECOND, NOW(6), created_at + INTERVAL 21050000 MICROSECOND) / 1000) FROM "+b.Quoted+" WHERE id = "+ids[0].ID).Scan(&least))
		for _, c := range found {
			switch {
			case !c.Waiting:
				b.Errorf("row %s has no grace: %+v", c.ID, c)
			case c.Identity == ids[0] && c.DueInMilli < least:
				b.Errorf("the relay publishes %d ms too early", least-c.DueInMilli)
			}
		}
	})
}

// G22: a row that is made after a statement was sent, and before the statement reads, lies ahead of the statement's NOW. It is young all the same.
func TestG22_RowsMadeWhileAStatementWaitsHaveTheirGrace(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		m := b.Mapping("outbox")
		m.Grace = 20 * time.Second
		b.Load(m)
		id := b.Insert(1, "created_at=NOW(3) - INTERVAL 1 HOUR")[0]
		conn, err := b.DB.Conn(b.Ctx)
		testkit.Must(b, err)
		defer func() { testkit.Must(b, conn.Close()) }()
		exec := func(statement string) {
			_, err := conn.ExecContext(b.Ctx, statement)
			testkit.Must(b, err)
		}
		for {
			exec("LOCK TABLES " + b.Quoted + " WRITE")
			type answer struct {
				found []outbox.Candidate
				err   error
			}
			asked := make(chan answer, 1)
			go func() {
				found, err := b.store.States(b.Ctx, []outbox.Identity{id})
				asked <- answer{found, err}
			}()
			testkit.WaitFor(b, time.Minute, "a statement that waits for the lock, or has given up", func() bool { return b.nowWaiting() > 0 || len(asked) > 0 })
			exec("UPDATE " + b.Quoted + " SET created_at=NOW(3) WHERE id=" + id.ID)
			exec("UNLOCK TABLES")
			if a := <-asked; !server.LockWait(a.err) { // else the machine was so slow that the statement has given up: once more
				testkit.Must(b, a.err)
				if len(a.found) != 1 || !a.found[0].Waiting || a.found[0].DueInMilli < 15_000 {
					b.Errorf("%+v, want a row with its grace", a.found)
				}
				return
			}
		}
	})
}

// G22: a sweep may search on a replica whose clock is ahead. What it finds is claimed, or read where there are no claims, by the primary's clock.
func TestG22_ARowInItsGraceIsNotPublishedBecauseAReplicaIsAhead(t *testing.T) {
	for _, claims := range []bool{true, false} {
		t.Run(fmt.Sprintf("claims %v", claims), func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				m := b.Mapping("outbox")
				m.Grace = 20 * time.Second
				if !claims {
					delete(m.Codes, outbox.Sending)
				}
				b.Load(m)
				for set, want := range map[string]int{"created_at=NOW(3)": 0, "created_at=NOW(3) + INTERVAL 30 SECOND": 0, "created_at=NOW(3) - INTERVAL 1 MINUTE": 1} {
					found := outbox.Candidate{Identity: b.Insert(1, set)[0], Status: outbox.Pending}
					if got, _ := b.publishable(found); len(got) != want {
						b.Errorf("%s: %d rows are published, want %d", set, len(got), want)
					}
				}
			})
		})
	}
}

// G22: a row whose time of making is no time counts as old, and is claimed with the others of its batch.
func TestG22_ARowThatWasMadeAtNoTime(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		m := b.Mapping("outbox")
		m.Grace = 20 * time.Second
		b.Load(m)
		ids := b.Insert(3, "created_at=NOW(3) - INTERVAL 1 MINUTE")
		conn, err := b.DB.Conn(b.Ctx)
		testkit.Must(b, err)
		defer func() { testkit.Must(b, conn.Close()) }()
		for _, statement := range []string{"SET SESSION sql_mode=''", "UPDATE " + b.Quoted + " SET created_at='0000-00-00 00:00:00', next_retry_time='0000-00-00 00:00:00' WHERE id=" + ids[1].ID} {
			_, err := conn.ExecContext(b.Ctx, statement)
			testkit.Must(b, err)
		}
		found := b.due(table.DueQuery{})
		token, err := b.store.Claim(b.Ctx, found)
		testkit.Must(b, err)
		messages, rejected, err := b.store.ReadBack(b.Ctx, token, ids)
		testkit.Must(b, err)
		if len(found) != len(ids) || len(messages)+len(rejected) != len(ids) {
			b.Errorf("found %d, read back %d and %d faulty, want all %d", len(found), len(messages), len(rejected), len(ids))
		}
	})
}
