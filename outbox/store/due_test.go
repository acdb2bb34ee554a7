package store

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Every row that is due comes once, whatever the size of a page; no other row comes.
func TestDuePages(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		const old, ago, soon = "created_at=NOW(3) - INTERVAL 5 MINUTE", "NOW(3) - INTERVAL 5 MINUTE", "NOW(3) + INTERVAL 10 SECOND"
		want := map[outbox.Identity]bool{}
		due := func(n int, set string) {
			for _, id := range b.Insert(n, set) {
				want[id] = true
			}
		}
		due(7, old)                                           // without a due time, old
		b.Insert(4, "")                                       // without a due time, young
		due(7, "next_retry_time="+ago)                        // due, all at different times
		due(7, "next_retry_time='2026-01-02 03:04:05'")       // due, all at the same time
		due(3, "next_retry_time="+soon)                       // within the horizon
		b.Insert(3, "next_retry_time=NOW() + INTERVAL 1 DAY") // beyond the horizon
		due(4, "status=1")                                    // claimed without a stamp
		due(4, "status=1, last_exec_time="+ago+", next_retry_time="+ago)
		due(4, "status=1, last_exec_time="+ago)
		b.Insert(4, "status=1, last_exec_time=NOW(3), next_retry_time="+ago) // claimed just now
		b.Insert(4, "status=1, last_exec_time=NOW(3)")
		for _, status := range []int{2, 3, 9} {
			b.Insert(3, fmt.Sprintf("status=%d, next_retry_time=%s", status, ago))
		}
		for _, limit := range []int{1, 3, 7, 500} {
			found := b.due(table.DueQuery{Threshold: time.Minute, Horizon: time.Minute, ExpiredClaims: time.Minute, Limit: limit})
			seen := map[outbox.Identity]bool{}
			for _, c := range found {
				if seen[c.Identity] {
					b.Errorf("limit %d: %v comes twice", limit, c.Identity)
				}
				seen[c.Identity] = true
				if !want[c.Identity] {
					b.Errorf("limit %d: %+v is not due", limit, c)
				}
			}
			if len(seen) != len(want) {
				b.Errorf("limit %d: %d of %d rows", limit, len(seen), len(want))
			}
		}
		if n, all := len(b.due(table.DueQuery{})), len(want)+4+4+4-3; n != all {
			b.Errorf("without threshold, horizon and claim time: %d rows, want %d", n, all)
		}
	})
}

// Only a row that no status update has touched says so: a relay that takes over looks for its message in the topic.
func TestRowsThatNoStatusUpdateHasTouched(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		want := map[outbox.Identity]bool{}
		for set, untouched := range map[string]bool{
			"": true, "status=1": false, "retry_count=1": false, "last_exec_time=NOW(3) - INTERVAL 1 HOUR": false,
			"next_retry_time=NOW(3) - INTERVAL 1 HOUR": true, // its producer's delay
		} {
			want[b.Insert(1, set)[0]] = untouched
		}
		found := b.due(table.DueQuery{})
		if len(found) != len(want) {
			b.Errorf("%d rows of %d", len(found), len(want))
		}
		for _, c := range found {
			if c.Untouched != want[c.Identity] {
				b.Errorf("%+v: want %v", c, want[c.Identity])
			}
		}
	})
}

// D10: no sweep remembers a highest id; a lower one that commits later is found by the next.
func TestD10_LowerIDCommitsLater(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		tx, err := b.DB.Begin()
		testkit.Must(b, err)
		_, err = tx.Exec("INSERT INTO " + b.Quoted + " SET id=1, biz_type='order', biz_key='a', topic='orders'")
		testkit.Must(b, err)
		testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" SET id=2, biz_type='order', biz_key='b', topic='orders'")
		if found := b.due(table.DueQuery{}); len(found) != 1 || found[0].ID != "2" {
			b.Errorf("first sweep: %+v", found)
		}
		testkit.Must(b, tx.Commit())
		if found := b.due(table.DueQuery{}); len(found) != 2 {
			b.Errorf("second sweep: %+v", found)
		}
	})
}

// Every statement on rows goes by the primary key, also in a table that is mostly SENT. For the queries of the sweep see
// TestSweepStaysOnTheIndexThatIsThere.
func TestAccessPaths(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(3000)
		b.MostlySent()
		var batch []outbox.Completion
		var claims []outbox.Candidate
		for _, id := range ids[2000:2500] {
			batch = append(batch, outbox.Completion{Identity: id, Claim: "2026-01-02 03:04:05.678", Reason: "x"})
			claims = append(claims, outbox.Candidate{Identity: id, ClaimToken: "2026-01-02 03:04:05.678"})
		}
		statements := map[string]*table.Statement{}
		for completion := outbox.ActionMarkSent; completion <= outbox.ActionRelease; completion++ {
			statements["update "+completion.String()] = b.table.update(completion, batch)
		}
		for how := claimPending; how <= claimUnstamped; how++ {
			statements[fmt.Sprint("claim ", how)] = b.table.claim(how, "2026-01-02 03:04:05.678", claims)
		}
		some := []outbox.Identity{{ID: "5", MessageID: "a"}, {ID: "7", MessageID: "b"}}
		statements["set back"], statements["due now"] = b.table.setBack(outbox.Failed, some), b.table.dueNow(some)
		for name, s := range statements {
			// The rows that are free, found by a range of keys; each of them, found by its key. On MariaDB and without SKIP LOCKED the range alone.
			wantKey, wantAccess := "PRIMARYPRIMARY", "ALLeq_refrange"
			if b.Server.Flavor == testkit.MariaDB || b.Server.Before(8, 0) {
				wantKey, wantAccess = "PRIMARY", "range"
			}
			if key, access, extra := b.Explain(s); key != wantKey || access != wantAccess {
				b.Errorf("%s: key %s, type %s, extra %s", name, key, access, extra)
			}
		}
	})
}

// Two sweepers claim the same rows at once: each row shows one stamp, and is read back by its claimer alone.
func TestClaimHasOneWinner(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.Insert(50, "")
		found := b.due(table.DueQuery{})
		winners := make([]map[outbox.Identity]bool, 2)
		var wg sync.WaitGroup
		for i := range winners {
			wg.Go(func() {
				winners[i] = map[outbox.Identity]bool{}
				stamp, err := b.store.Claim(b.Ctx, found)
				if err != nil {
					b.Errorf("claim: %v", err)
					return
				}
				messages, _, err := b.store.ReadBack(b.Ctx, stamp, ids)
				if err != nil {
					b.Errorf("read back: %v", err)
				}
				for _, m := range messages {
					winners[i][m.Identity] = true
				}
			})
			if i == 0 {
				wg.Wait() // the second comes with candidates that were true before the first
			}
		}
		wg.Wait()
		if len(winners[0]) != 50 || len(winners[1]) != 0 {
			b.Errorf("first %d, second %d of 50", len(winners[0]), len(winners[1]))
		}
	})
}

// D02: a claim that expired is taken over by its stamp, and only by it.
func TestD02_ExpiredClaimsAreTakenOver(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		stamped := b.Insert(1, "status=1, last_exec_time='2026-01-02 03:04:05.678'")[0]
		unstamped := b.Insert(1, "status=1")[0]
		found := b.due(table.DueQuery{ExpiredClaims: time.Minute})
		if len(found) != 2 {
			b.Fatalf("due: %+v", found)
		}
		stamp, err := b.store.Claim(b.Ctx, found)
		testkit.Must(b, err)
		messages, _, err := b.store.ReadBack(b.Ctx, stamp, []outbox.Identity{stamped, unstamped})
		testkit.Must(b, err)
		if len(messages) != 2 {
			b.Fatalf("read back %d rows", len(messages))
		}
		for _, c := range b.due(table.DueQuery{}) { // the sweep recognizes its own claims by it
			if c.ClaimToken != stamp {
				b.Errorf("claimed with %q, shown as %q", stamp, c.ClaimToken)
			}
		}
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET last_exec_time='2026-02-02 03:04:05'") // another process was here
		if _, err := b.store.Claim(b.Ctx, found); err != nil {
			b.Fatal(err)
		}
		for _, id := range []outbox.Identity{stamped, unstamped} {
			b.Want(id, "2026-02-02 03:04:05.000", "CAST(last_exec_time AS CHAR)")
		}
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=2, last_exec_time=NULL WHERE id="+unstamped.ID) // sent meanwhile
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=2, last_exec_time='2026-01-02 03:04:05.678' WHERE id="+stamped.ID)
		if _, err := b.store.Claim(b.Ctx, found); err != nil {
			b.Fatal(err)
		}
		for _, id := range []outbox.Identity{stamped, unstamped} {
			b.Want(id, "2", "status")
		}
	})
}

// A row that was postponed, held, sent or replaced between the look and the claim is not claimed.
func TestClaimLooksAgain(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.Insert(5, "")
		found := b.due(table.DueQuery{})
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET next_retry_time=NOW() + INTERVAL 1 MINUTE WHERE id="+ids[0].ID)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=9 WHERE id="+ids[1].ID)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=2 WHERE id="+ids[2].ID)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET biz_key='another' WHERE id="+ids[3].ID)
		stamp, err := b.store.Claim(b.Ctx, found)
		testkit.Must(b, err)
		messages, _, err := b.store.ReadBack(b.Ctx, stamp, ids)
		testkit.Must(b, err)
		if len(messages) != 1 || messages[0].Identity != ids[4] {
			b.Errorf("claimed %d rows", len(messages))
		}
		for i, status := range []string{"0", "9", "2", "0", "1"} {
			b.Want(ids[i], status, "status")
		}
	})
}

// P1: a claimed row that cannot become a message ends visibly, and its neighbours are read.
func TestUnreadableRowsFail(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.Insert(3, "retry_count=2")
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET headers='[1]' WHERE id="+ids[0].ID)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET topic='' WHERE id="+ids[1].ID)
		stamp, err := b.store.Claim(b.Ctx, b.due(table.DueQuery{}))
		testkit.Must(b, err)
		messages, rejected, err := b.store.ReadBack(b.Ctx, stamp, ids)
		testkit.Must(b, err)
		if len(messages) != 1 || messages[0].Identity != ids[2] || len(rejected) != 2 || rejected[0].RetryCount != 2 || rejected[0].Action != outbox.ActionFail {
			b.Errorf("%d messages, rejected %+v", len(messages), rejected)
		}
		_, err = b.store.Apply(b.Ctx, rejected)
		testkit.Must(b, err)
		b.Want(ids[0], "3|1", "status", "fail_reason LIKE '%column headers (headers): it is not a JSON object%'")
		b.Want(ids[1], "3|1", "status", "fail_reason LIKE '%column topic (topic): it is empty%'")
	})
}

// The index a query forces may be dropped or renamed while we run.
func TestSweepSurvivesALostIndex(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Insert(3, "")
		testkit.Exec(b, b.DB, "DROP INDEX idx_sweep ON "+b.Quoted)
		if found := b.due(table.DueQuery{}); len(found) != 3 {
			b.Errorf("%d rows", len(found))
		}
	})
}
