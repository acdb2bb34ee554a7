package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// D07, D08: a lock on one table, or on rows of it, delays the statuses of no other table. What counts is the time from the
// commit of a row until it shows as SENT, compared with the same relay undisturbed.
func TestD07_D08_LocksOfOneTableDelayNoOther(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.table("other")
		l.start()
		l.exec("INSERT INTO other " + columns + values("first"))
		l.sent()
		// Without gaps: one that InnoDB makes of a row lock when a page is split would hold up the INSERTs here.
		holder := l.session("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
		want := []string{"first"}
		// The machine may pause for longer than a phase takes: what is slow each time is slow because of the locks.
		for try := 1; !l.locksDelayNothing(holder, try, &want); try++ {
			if try == 3 {
				t.Error("rows of another table are SENT late each time")
				break
			}
		}
		l.account(want...)
	})
}

// locksDelayNothing reports whether rows of another table are SENT next to locks about as soon as undisturbed.
func (l *lab) locksDelayNothing(holder *session, try int, want *[]string) bool {
	l.t.Helper()
	phases := []string{fmt.Sprint("undisturbed", try, "-"), fmt.Sprint("tablelock", try, "-"), fmt.Sprint("rowlock", try, "-")}
	undisturbed := l.sentAfter(phases[0], nil)
	byTable := l.nextToALockedTable(holder, phases[1], want)
	byRow := l.nextToLockedRows(holder, phases[2], want)
	for _, phase := range phases {
		*want = append(*want, keys(phase, rowsOfPhase)...)
	}
	l.t.Logf("from commit to SENT, p90: %v undisturbed, %v next to a locked table, %v next to locked rows", undisturbed, byTable, byRow)
	return max(byTable, byRow) <= 2*undisturbed // which is mostly the wait for other rows
}

// nextToALockedTable is sentAfter while rows of the other table wait for its lock.
func (l *lab) nextToALockedTable(holder *session, phase string, want *[]string) time.Duration {
	l.t.Helper()
	holder.exec("LOCK TABLES t_local_message WRITE")
	took := l.sentAfter(phase, func(i int) {
		if i%10 == 0 {
			key := fmt.Sprint("locked by ", phase, i)
			holder.exec(insert(key))
			*want = append(*want, key)
		}
	})
	l.wait("the statuses to wait for the lock of the table", func() bool { return l.metric("ack_pending") >= rowsOfPhase/10 })
	holder.exec("UNLOCK TABLES")
	l.wait("the statuses that waited", func() bool { return l.metric("ack_pending") == 0 })
	return took
}

// nextToLockedRows is sentAfter while statuses of the other table wait for locked rows.
func (l *lab) nextToLockedRows(holder *session, phase string, want *[]string) time.Duration {
	l.t.Helper()
	holder.exec("BEGIN")
	tries := 0
	lock := func() {
		tries++
		*want = append(*want, l.lockFresh(holder, fmt.Sprint("row of ", phase, tries)))
	}
	l.wait("a status to wait for a lock", func() bool {
		lock() // which the relay may win
		return l.metric("ack_locked") > 0
	})
	took := l.sentAfter(phase, func(i int) {
		if i%10 == 0 {
			lock()
		}
	})
	if l.metric("ack_locked") == 0 {
		l.t.Error("no row was behind a lock: the test shows nothing")
	}
	holder.exec("ROLLBACK")
	l.wait("the statuses that waited", func() bool { return l.metric("ack_pending") == 0 })
	return took
}

const rowsOfPhase = 100

// sentAfter commits rows to the table "other" at a steady pace and returns the time after which nine of ten showed as SENT. It
// calls also before each of them.
func (l *lab) sentAfter(phase string, also func(i int)) time.Duration {
	l.t.Helper()
	committed, took := map[string]time.Time{}, map[string]time.Duration{}
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	next := time.Now()
	for deadline := time.Now().Add(patience); len(took) < rowsOfPhase; <-pace.C {
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: %d of %d rows are SENT", phase, len(took), rowsOfPhase)
		}
		if i := len(committed); i < rowsOfPhase && !time.Now().Before(next) {
			if also != nil {
				also(i)
			}
			key := fmt.Sprint(phase, i)
			l.exec("INSERT INTO other " + columns + values(key))
			committed[key] = time.Now()
			next = next.Add(20 * time.Millisecond)
		}
		for _, key := range l.column("SELECT biz_key FROM other WHERE status = 2 AND biz_key LIKE ?", phase+"%") {
			if _, seen := took[key]; !seen {
				took[key] = time.Since(committed[key])
			}
		}
	}
	var all []time.Duration
	for _, d := range took {
		all = append(all, d)
	}
	slices.Sort(all)
	return all[len(all)*9/10]
}

// lockFresh commits a row and locks it before the relay has written its status, and returns its key.
func (l *lab) lockFresh(holder *session, prefix string) string {
	l.t.Helper()
	result, err := l.sql.Exec(insert(prefix))
	testkit.Must(l.t, err)
	id, err := result.LastInsertId()
	testkit.Must(l.t, err)
	var key string
	testkit.Must(l.t, holder.conn.QueryRowContext(context.Background(),
		"SELECT biz_key FROM t_local_message WHERE id = ? FOR UPDATE", id).Scan(&key))
	return key
}

// column is the first column of a query's rows.
func (l *lab) column(query string, args ...any) (list []string) {
	l.t.Helper()
	rows, err := l.sql.Query(query, args...)
	testkit.Must(l.t, err)
	defer rows.Close()
	for rows.Next() {
		var s string
		testkit.Must(l.t, rows.Scan(&s))
		list = append(list, s)
	}
	testkit.Must(l.t, rows.Err())
	return list
}
