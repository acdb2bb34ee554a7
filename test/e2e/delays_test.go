package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A row that is due later is published at its time, by the database's clock and the broker's time of storage: right after a start,
// while a sweep works off a backlog and thousands of other rows wait, and when the log brings the row. What is postponed meanwhile
// comes at its new time, what is held or deleted does not come.
func TestRowsArePublishedWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			l, read := newDelays(t, flavor)
			l.fill(10_000)                          // due at once: a long sweep
			l.waiting("far", 10_000, "1 HOUR", 0)   // not due during the test
			l.waiting("stood", 1000, "6 SECOND", 3) // due over three seconds, the first ones soon after the start
			l.Start(t)
			l.waiting("came", 1000, "4 SECOND", 3)
			l.waiting("changed", 30, "4 SECOND", 0)
			l.exec("UPDATE t_local_message SET next_retry_time = next_retry_time + INTERVAL 2 SECOND WHERE biz_type = 'changed' AND id % 3 = 0")
			l.exec("UPDATE t_local_message SET status = 9 WHERE biz_type = 'changed' AND id % 3 = 1")
			l.exec("DELETE FROM t_local_message WHERE biz_type = 'changed' AND id % 3 = 2")
			for _, kind := range []string{"stood", "came", "changed"} {
				late := read(kind)
				// The machine is busy with other tests: the promise of 100 ms is asked of most of them.
				if late[0] < -5*time.Millisecond || late[len(late)/2] > 100*time.Millisecond || late[len(late)-1] > 2*time.Second {
					t.Errorf("%s: rows were published %v to %v after their time", kind, late[0], late[len(late)-1])
				}
			}
			l.waitCount(10_000, "biz_type = 'far' AND status = 0")
			l.stopInTime()
		})
	}
}

// newDelays is a stage with the topic delayed, and read, which waits until the rows of a kind are SENT and returns how late the broker
// stored each, in order.
func newDelays(t *testing.T, flavor testkit.Flavor) (l *stage, read func(kind string) []time.Duration) {
	t.Helper()
	relay.Binary(t, "") // made before the rows, whose times are near
	cluster := fake(t)
	testkit.Must(t, testkit.CreateKafkaTopic(t.Context(), cluster.Addr(), "delayed", 4, map[string]string{"message.timestamp.type": "LogAppendTime"}))
	l = newStage(t, testkit.SharedDatabase(t, flavor), cluster, "fallback: {interval: 30s}")
	return l, func(kind string) []time.Duration {
		t.Helper()
		l.waitCount(0, "biz_type = '"+kind+"' AND status IN (0, 1)")
		due := map[string]time.Time{}
		rows, err := l.sql.Query("SELECT biz_key, CAST(UNIX_TIMESTAMP(next_retry_time) * 1000 AS SIGNED) FROM t_local_message WHERE biz_type = ? AND status = 2", kind)
		testkit.Must(t, err)
		defer rows.Close()
		for rows.Next() {
			var key string
			var milli int64
			testkit.Must(t, rows.Scan(&key, &milli))
			due[key] = time.UnixMilli(milli)
		}
		testkit.Must(t, rows.Err())
		records, err := testkit.ReadKafkaTopic(t.Context(), cluster.Addr(), "delayed")
		testkit.Must(t, err)
		var late []time.Duration
		for _, r := range records {
			if key := string(r.Key); strings.HasPrefix(key, kind) {
				if due[key].IsZero() {
					t.Fatalf("%s was published, or more than once", key)
				}
				late = append(late, r.Timestamp.Sub(due[key]))
				delete(due, key)
			}
		}
		if len(due) > 0 || len(late) == 0 {
			t.Fatalf("%d of the rows of the kind %s were not published, %d were", len(due), kind, len(late))
		}
		slices.Sort(late)
		t.Logf("%s: %d rows, late by %v (median), %v (99 of 100), %v at most", kind, len(late), late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
		return late
	}
}

// waiting writes rows of a kind that become due after an interval, spread over so many seconds.
func (l *stage) waiting(kind string, rows int, after string, seconds int) {
	l.t.Helper()
	const chunk = 1000
	for at := 0; at < rows; at += chunk {
		var values []string
		for i := at; i < min(rows, at+chunk); i++ {
			values = append(values, fmt.Sprintf("('%s', '%s%d', 'delayed', '{}', @base + INTERVAL %d MICROSECOND)", kind, kind, i, int64(i)*int64(seconds)*1_000_000/int64(rows)))
		}
		tx, err := l.sql.Begin()
		testkit.Must(l.t, err)
		_, err = tx.Exec("SET @base = NOW(3) + INTERVAL " + after)
		testkit.Must(l.t, err)
		_, err = tx.Exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, next_retry_time) VALUES " + strings.Join(values, ", "))
		testkit.Must(l.t, err)
		testkit.Must(l.t, tx.Commit())
	}
}
