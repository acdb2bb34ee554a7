package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// final reads the list of final rows to its end in pages of two.
func (b *bench) final(status outbox.Status, age time.Duration) (ids []outbox.Identity) {
	b.Helper()
	for at := (table.Cursor{}); !at.Done(); {
		page, next, err := b.store.Final(b.Ctx, b.table.Name(), at, table.FinalQuery{Status: status, Age: age, Limit: 2})
		testkit.Must(b, err)
		for _, c := range page {
			ids = append(ids, c.Identity)
		}
		at = next
	}
	return ids
}

// In every layout the rows that are FAILED for long enough are found, each once, and only they are set back: due now, with the attempts
// that they have used.
func TestFailedRowsAreSetBack(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		if !l.Has("failed") {
			b.Add(l, 1)
			found := b.due(table.DueQuery{})
			if n, err := b.store.RetryFailed(b.Ctx, []outbox.Identity{found[0].Identity}); n != 0 || err != nil || len(b.final(outbox.Failed, 0)) > 0 {
				b.Errorf("%d rows of a table without FAILED, %v", n, err)
			}
			return
		}
		const rows = 9 // 1 to 5 failed long ago, 6 and 7 lately, 8 is SENT, 9 is FAILED and then another row
		ids := map[int]outbox.Identity{}
		for n := 1; n <= rows; n++ {
			b.Add(l, n)
			for _, c := range b.due(table.DueQuery{}) {
				if c.MessageID == l.MessageID(n) {
					ids[n] = c.Identity
				}
			}
		}
		for n := 1; n <= rows; n++ {
			status, last := "failed", "7 HOUR"
			if n == 6 || n == 7 {
				last = "5 HOUR"
			}
			if n == 8 {
				status = "sent"
			}
			b.times(l, n, status, last, last)
			if l.Has("attempts") {
				testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET retry_count = 5 WHERE "+l.Where(n))
				b.times(l, n, status, last, last) // ON UPDATE
			}
		}
		want := []outbox.Identity{ids[1], ids[2], ids[3], ids[4], ids[5], ids[9]}
		byText := func(x, y outbox.Identity) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) }
		found := b.final(outbox.Failed, 6*time.Hour)
		slices.SortFunc(found, byText)
		slices.SortFunc(want, byText)
		if !slices.Equal(found, want) {
			b.Fatalf("found %v, want %v", found, want)
		}
		other := ids[9]
		other.MessageID += "x"
		n, err := b.store.RetryFailed(b.Ctx, []outbox.Identity{ids[1], ids[2], ids[8], other})
		if n != 2 || err != nil {
			b.Fatalf("%d rows set back, %v", n, err)
		}
		for n, status := range map[int]string{1: "pending", 2: "pending", 3: "failed", 8: "sent", 9: "failed"} {
			b.WantStatus(l, n, status)
		}
		if l.Has("attempts") && !b.Shows(l, 1, "retry_count = 5") {
			b.Error("the attempts are forgotten")
		}
		if l.Due != "" && !b.Shows(l, 1, l.Due+" <= NOW() + INTERVAL 1 SECOND") {
			b.Error("the row is not due now")
		}
		if left := b.final(outbox.Failed, 6*time.Hour); len(left) != 4 {
			b.Errorf("still FAILED: %v", left)
		}
		var due []outbox.Candidate
		testkit.WaitFor(b, 10*time.Second, "the rows to be due", func() bool { // a DATETIME is rounded up
			due = slices.DeleteFunc(b.due(table.DueQuery{}), func(c outbox.Candidate) bool { return c.Waiting })
			return len(due) == 2
		})
		if due[0].RetryCount != 5 {
			b.Errorf("%+v", due[0])
		}
	})
}

// A row that another session has locked does not keep other rows from being set back, and the statement waits at most a second.
func TestFailedRowsBehindALock(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.Insert(3, "status=3, retry_count=5")
		tx, err := b.DB.Begin()
		testkit.Must(b, err)
		if _, err := tx.Exec("UPDATE "+b.Quoted+" SET tag = 'locked' WHERE id = ?", ids[1].ID); err != nil {
			b.Fatal(err)
		}
		n, err := b.store.RetryFailed(b.Ctx, ids)
		if n != 2 || err != nil {
			b.Errorf("%d rows, %v", n, err)
		}
		testkit.Must(b, tx.Rollback())
		b.Want(ids[0], "0|5", "status", "retry_count")
		b.Want(ids[1], "3|5", "status", "retry_count")
	})
}

// Where a table does not count attempts, a row that is set back has none left.
func TestFailedRowsWithoutAColumnForAttempts(t *testing.T) {
	b := newBench(t, testkit.MariaDB)
	b.Create("outbox")
	m := b.Mapping("outbox")
	m.Set(table.RetryCount, "")
	b.LoadAsIs(m)
	id := b.Insert(1, "status=3")[0]
	if n, err := b.store.RetryFailed(b.Ctx, []outbox.Identity{id}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if due := b.due(table.DueQuery{}); len(due) != 1 || due[0].RetryCount != spent {
		t.Errorf("%+v", due)
	}
}

// The pages of final rows are ranges of the index that the table has, without a sort.
func TestFinalRowsStayOnTheIndexThatIsThere(t *testing.T) {
	for _, layout := range tabletest.IndexLayouts {
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.InsertMany(3000)
				b.MostlySent()
				b.Reindex(layout)
				testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
				for _, status := range []outbox.Status{outbox.Sent, outbox.Failed} {
					query := pageQuery{DueQuery: table.DueQuery{Limit: 100}, final: time.Hour}
					for _, in := range b.table.rangesOf(status, query) {
						for _, at := range []table.Cursor{{}, {LastID: b.table.NoID(), LastTime: "2026-01-02 03:04:05.678"}} {
							at.Attempts.Value = "0"
							b.InOrder(fmt.Sprintf("%+v behind %+v", in, at), b.table.due(in, at, query), layout.Strategy, at.LastID != "")
						}
					}
				}
			})
		})
	}
}

// G23: a row that is tried again and again leaves at the time counted from its first failure, not when it failed last.
func TestG23_TheAgeOfAFailedRowCountsFromItsFirstFailure(t *testing.T) {
	for name, due := range map[string]string{"without a due time": "NULL", "after a retry": "NOW(3) - INTERVAL 41 DAY"} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				b.MakeMoved(table.FailedSuffix)
				retried := logged
				retried.Retried = true
				id := b.Insert(1, "status=3, created_at=NOW(3) - INTERVAL 60 DAY, updated_at=NOW(3), last_exec_time=NOW(3) - INTERVAL 40 DAY, next_retry_time="+due)[0]
				young := b.Insert(1, "status=3, created_at=NOW(3) - INTERVAL 60 DAY, updated_at=NOW(3), last_exec_time=NOW(3) - INTERVAL 10 DAY, next_retry_time=NOW(3) - INTERVAL 11 DAY")[0]
				for range 2 { // it is tried again and fails again
					n, err := b.store.RetryFailed(b.Ctx, []outbox.Identity{id, young})
					testkit.Must(b, err)
					if n != 2 {
						b.Fatalf("%d rows were set back", n)
					}
					if found := b.due(table.DueQuery{}); len(found) != 2 || found[0].Waiting || found[1].Waiting {
						b.Fatalf("due: %+v", found)
					}
					b.apply(outbox.Completion{Identity: id, Action: outbox.ActionFail, Reason: "again"}, outbox.Completion{Identity: young, Action: outbox.ActionFail, Reason: "again"})
					b.Want(id, "3|1", "status", "last_exec_time > NOW(3) - INTERVAL 1 HOUR")
				}
				found, _ := b.walkAll(retried)
				if !slices.Equal(found[0], []string{id.ID}) {
					b.Errorf("expired: %q", found[0])
				}
				if left := b.expire(retried, []string{id.ID, young.ID}); left.Rows != 1 {
					b.Errorf("left %+v", left)
				}
			})
		})
	}
}
