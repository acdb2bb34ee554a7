package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// prompt starts the relay with sweeps that come only when triggered, and lets the first one pass.
func prompt(t *testing.T, flavor testkit.Flavor, more ...string) *lab {
	t.Helper()
	l := newLab(t, testkit.SharedDatabase(t, flavor), append([]string{rareSweeps}, more...)...)
	l.start()
	l.settled("settled")
	return l
}

// settled publishes a row through the log and waits until the sweeps that a start begins with are over, their second round
// a second later too, so that they bring nothing that comes afterwards.
func (l *lab) settled(key string) {
	l.t.Helper()
	l.commit(key)
	l.sent()
	runs, since := l.metric("sweep_runs_total"), time.Now()
	l.wait("the sweeps to end", func() bool {
		if now := l.metric("sweep_runs_total"); now != runs {
			runs, since = now, time.Now()
		}
		return runs > 0 && time.Since(since) > 2*time.Second
	})
}

func (l *lab) wantDeferred(cause string, rows int) {
	l.t.Helper()
	if got := l.deferred(cause); got != rows {
		l.t.Errorf("deferred_total{cause=%q} is %d, want %d", cause, got, rows)
	}
}

// fromSweep is the number of rows that sweeps published.
func (l *lab) fromSweep() int { return int(l.metric("sweep_rows_total", `result="new"`)) }

// A29: REPLACE and INSERT ... ON DUPLICATE KEY UPDATE of a key that exists come as UPDATE rows. The sweep finds the row,
// which is PENDING again; of a key that does not exist they are plain inserts.
func TestA29_ReplaceAndUpsert(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor), frequentSweeps)
		l.start()
		l.exec(strings.Replace(insert("new by replace"), "INSERT", "REPLACE", 1))
		l.exec(insert("new by upsert") + " ON DUPLICATE KEY UPDATE status = 0")
		l.exec(insert("replaced"))
		l.exec(insert("upserted"))
		l.sent()
		l.compare("new by replace", "new by upsert", "replaced", "upserted")
		// A second message under the same identity is a second publish, of the content it has now.
		l.exec("REPLACE INTO t_local_message " + columns + " VALUES ('order', 'replaced', 'orders', 'second')")
		l.exec("INSERT INTO t_local_message " + columns + " VALUES ('order', 'upserted', 'orders', 'x') ON DUPLICATE KEY UPDATE status = 0, message_body = 'second'")
		l.sent()
		l.swept()
		records := l.records()
		for _, key := range []string{"replaced", "upserted"} {
			if got := records[key]; len(got) != 2 || string(got[1].Value) != "second" {
				t.Errorf("%s: %d copies", key, len(got))
			}
		}
		if len(records["new by replace"]) != 1 || len(records["new by upsert"]) != 1 || len(records) != 4 {
			t.Errorf("%d keys", len(records))
		}
	})
}

// A30: statement format shows no rows, but the statement names the table: the triggered sweep brings the rows at once.
func TestA30_StatementFormat(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := prompt(t, flavor)
		s := l.session("SET SESSION binlog_format = 'STATEMENT'", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
		want := keys("s", 100)
		for i := 0; i < 100; i += 10 {
			s.exec(insert(want[i : i+10]...))
		}
		l.sent()
		if n := l.deferred("statement"); n == 0 {
			t.Error("no statement was counted")
		}
		l.account(append(want, "settled")...)
	})
}

// A29, A30: rows that the log never showed as inserted are counted, when the relay has been quiet for long enough to be sure,
// and not before; a delayed one and one that the log named are never among them.
func TestA29_A30_UnseenRowsAreCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}), frequentSweeps) // whose log has no DDL of other tests
		l.start()
		hidden := l.session("SET SESSION sql_log_bin = 0")
		early := keys("early", 20)
		hidden.exec(insert(early...))
		l.sent()
		l.wantMissed(0)
		want, probes := early, 0
		l.wait("the relay to be quiet", func() bool {
			probe := fmt.Sprint("probe", probes)
			hidden.exec(insert(probe))
			want, probes = append(want, probe), probes+1
			l.sent()
			return l.missed() > 0
		})
		counted := l.missed()
		late := keys("late", 50)
		hidden.exec(insert(late...))
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, next_retry_time) VALUES ('order', 'delayed', 'orders', 'body of delayed', NOW(3) + INTERVAL 3 SECOND)")
		l.commit("seen", "to be replaced")
		l.sent()
		l.exec(strings.Replace(insert("to be replaced"), "INSERT", "REPLACE", 1))
		l.exec("UPDATE t_local_message SET status = 0 WHERE biz_key = 'seen'")
		l.sent()
		l.wait("the last of them to be counted", func() bool { return l.missed() >= counted+52 })
		l.session("SET SESSION binlog_format = 'STATEMENT'", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", insert("named"))
		hidden.exec(insert("beside it"))
		l.sent()
		l.swept()
		l.wantMissed(counted + 52)
		records := l.records()
		for _, key := range append(append(want, late...), "delayed", "named", "beside it") {
			if n := len(records[key]); n != 1 {
				t.Errorf("%s was published %d times", key, n)
			}
		}
	})
}

// A31: the outcome comes in another life of the relay, which did not see the branch prepared. Sweeps come only when triggered
// here, so that the COMMIT itself must have brought them. A branch of other tables that was seen triggers nothing.
func TestA31_XADecidedInAnotherLife(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})) // where no other test decides on branches
		l.start()
		l.settled("settled")
		l.exec("CREATE TABLE other (id INT PRIMARY KEY)")
		l.branch("c", insert("committed later", "committed later too"))
		l.branch("d", insert("rolled back later"))
		l.commit("fence")
		l.sent()
		l.stop()
		l.start()
		l.settled("restarted")
		runs := l.metric("sweep_runs_total")
		l.branch("foreign", "INSERT INTO other VALUES (1)")
		l.finish("foreign", "COMMIT")
		l.finish("d", "ROLLBACK")
		l.commit("after the rollback")
		l.sent()
		l.wantDeferred("xa", 0)
		if now := l.metric("sweep_runs_total"); now != runs {
			t.Errorf("%v sweeps for a rollback and another table's commit", now-runs)
		}
		l.finish("c", "COMMIT")
		l.wait("the rows of the branch", func() bool { return len(l.records()["committed later too"]) > 0 })
		l.wantDeferred("xa", 1)
		l.account("settled", "fence", "restarted", "after the rollback", "committed later", "committed later too")
	})
}

// branch prepares an XA branch with one change and leaves it.
func (l *lab) branch(xid, change string) {
	l.t.Helper()
	xid = "'" + l.schema + xid + "'"
	l.session("XA START "+xid, change, "XA END "+xid, "XA PREPARE "+xid).close()
}

// finish decides on a prepared branch from a session of its own; the server may still be busy detaching it.
func (l *lab) finish(xid, verb string) {
	l.t.Helper()
	l.wait("XA "+verb, func() bool {
		_, err := l.db.Root().Exec("XA " + verb + " '" + l.schema + xid + "'")
		return err == nil
	})
}
