package table

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// final reads the list of final rows to its end in pages of two.
func (b *bench) final(status outbox.Status, age time.Duration) (ids []outbox.Identity) {
	b.Helper()
	for at := (Cursor{}); !at.Done(); {
		page, next, err := b.store.Final(b.ctx, b.table.name, at, FinalQuery{Status: status, Age: age, Limit: 2})
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
			b.add(l, 1)
			found := b.due(DueQuery{})
			if n, err := b.store.RetryFailed(b.ctx, []outbox.Identity{found[0].Identity}); n != 0 || err != nil || len(b.final(outbox.Failed, 0)) > 0 {
				b.Errorf("%d rows of a table without FAILED, %v", n, err)
			}
			return
		}
		const rows = 9 // 1 to 5 failed long ago, 6 and 7 lately, 8 is SENT, 9 is FAILED and then another row
		ids := map[int]outbox.Identity{}
		for n := 1; n <= rows; n++ {
			b.add(l, n)
			for _, c := range b.due(DueQuery{}) {
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
				testkit.Exec(b, b.db, "UPDATE "+b.name+" SET retry_count = 5 WHERE "+l.Where(n))
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
		n, err := b.store.RetryFailed(b.ctx, []outbox.Identity{ids[1], ids[2], ids[8], other})
		if n != 2 || err != nil {
			b.Fatalf("%d rows set back, %v", n, err)
		}
		for n, status := range map[int]string{1: "pending", 2: "pending", 3: "failed", 8: "sent", 9: "failed"} {
			b.wantStatus(l, n, status)
		}
		if l.Has("attempts") && !b.shows(l, 1, "retry_count = 5") {
			b.Error("the attempts are forgotten")
		}
		if l.Due != "" && !b.shows(l, 1, l.Due+" <= NOW() + INTERVAL 1 SECOND") {
			b.Error("the row is not due now")
		}
		if left := b.final(outbox.Failed, 6*time.Hour); len(left) != 4 {
			b.Errorf("still FAILED: %v", left)
		}
		var due []outbox.Candidate
		testkit.WaitFor(b, 10*time.Second, "the rows to be due", func() bool { // a DATETIME is rounded up
			due = slices.DeleteFunc(b.due(DueQuery{}), func(c outbox.Candidate) bool { return c.Waiting })
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
		ids := b.insert(3, "status=3, retry_count=5")
		tx, err := b.db.Begin()
		testkit.Must(b, err)
		if _, err := tx.Exec("UPDATE "+b.name+" SET tag = 'locked' WHERE id = ?", ids[1].ID); err != nil {
			b.Fatal(err)
		}
		n, err := b.store.RetryFailed(b.ctx, ids)
		if n != 2 || err != nil {
			b.Errorf("%d rows, %v", n, err)
		}
		testkit.Must(b, tx.Rollback())
		b.want(ids[0], "0|5", "status", "retry_count")
		b.want(ids[1], "3|5", "status", "retry_count")
	})
}

// Where a table does not count attempts, a row that is set back has none left.
func TestFailedRowsWithoutAColumnForAttempts(t *testing.T) {
	b := newBench(t, testkit.MariaDB)
	b.create("outbox")
	m := b.mapping("outbox")
	m.Set(RetryCount, "")
	b.loadAsIs(m)
	id := b.insert(1, "status=3")[0]
	if n, err := b.store.RetryFailed(b.ctx, []outbox.Identity{id}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if due := b.due(DueQuery{}); len(due) != 1 || due[0].RetryCount != spent {
		t.Errorf("%+v", due)
	}
}

// The pages of final rows are ranges of the index that the table has, without a sort.
func TestFinalRowsStayOnTheIndexThatIsThere(t *testing.T) {
	for _, layout := range layoutsOfTheIndex {
		t.Run(layout.name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.insertMany(3000)
				b.mostlySent()
				b.reindex(layout)
				testkit.Exec(b, b.db, "ANALYZE TABLE "+b.name)
				for _, status := range []outbox.Status{outbox.Sent, outbox.Failed} {
					query := DueQuery{Limit: 100, final: time.Hour}
					for _, in := range b.table.stretchesOf(status, query) {
						for _, at := range []Cursor{{}, {id: b.table.nobody(), time: "2026-01-02 03:04:05.678"}} {
							at.attempts.value = "0"
							b.inOrder(fmt.Sprintf("%+v behind %+v", in, at), b.table.due(in, at, query), layout.strategy, at.id != "")
						}
					}
				}
			})
		})
	}
}

// G23: a row that is tried again and again leaves when it failed first for so long ago, not when it failed last.
func TestG23_TheAgeOfAFailedRowCountsFromItsFirstFailure(t *testing.T) {
	for name, due := range map[string]string{"without a due time": "NULL", "after a retry": "NOW(3) - INTERVAL 41 DAY"} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				b.makeMoved(FailedSuffix)
				retried := logged
				retried.Retried = true
				id := b.insert(1, "status=3, created_at=NOW(3) - INTERVAL 60 DAY, updated_at=NOW(3), last_exec_time=NOW(3) - INTERVAL 40 DAY, next_retry_time="+due)[0]
				young := b.insert(1, "status=3, created_at=NOW(3) - INTERVAL 60 DAY, updated_at=NOW(3), last_exec_time=NOW(3) - INTERVAL 10 DAY, next_retry_time=NOW(3) - INTERVAL 11 DAY")[0]
				for range 2 { // it is tried again and fails again
					n, err := b.store.RetryFailed(b.ctx, []outbox.Identity{id, young})
					testkit.Must(b, err)
					if n != 2 {
						b.Fatalf("%d rows were set back", n)
					}
					if found := b.due(DueQuery{}); len(found) != 2 || found[0].Waiting || found[1].Waiting {
						b.Fatalf("due: %+v", found)
					}
					b.apply(outbox.Completion{Identity: id, Action: outbox.ActionFail, Reason: "again"}, outbox.Completion{Identity: young, Action: outbox.ActionFail, Reason: "again"})
					b.want(id, "3|1", "status", "last_exec_time > NOW(3) - INTERVAL 1 HOUR")
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
