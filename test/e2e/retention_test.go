package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// old writes n rows with this status that became final two hours ago, before a relay reads the log.
func (l *stage) old(status, n int) {
	l.t.Helper()
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf("('old', '%d-%d', 'orders', '{}', %[1]d, NOW(3) - INTERVAL 3 HOUR, NOW(3) - INTERVAL 2 HOUR)", status, i+1))
	}
	l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, status, created_at, last_exec_time) VALUES " + strings.Join(rows, ", "))
}

func (l *stage) rowsIn(suffix string) (n int) {
	l.t.Helper()
	testkit.Must(l.t, l.sql.QueryRow("SELECT COUNT(*) FROM t_local_message"+suffix+" WHERE biz_type = 'old'").Scan(&n))
	return n
}

// D19: old rows leave a table while an application writes into it. Each is in the archive or in the log afterwards. A row that
// another session has locked stays until it is free. A row that is published meanwhile is neither lost nor copied nor left to
// the sweep.
func TestD19_OldRowsLeaveBesideALoad(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		const sent, failed = 900, 7
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}) // whose log has no statements of other tests
		l := newStage(t, db, fake(t), "retention: {archive: 1h, failed: 90m}\nfallback: {interval: 1h}")
		l.old(2, sent)
		l.old(3, failed)
		out, errOut, code := l.Command(t, "doctor")
		if code == 0 {
			t.Error("doctor finds nothing wrong without the tables that rows move to")
		}
		contains(t, out+errOut, "t_local_message_archive", "t_local_message_failed", "canal-outbox migrate")
		out, errOut, code = l.Command(t, "run")
		if code != 1 {
			t.Errorf("a start without them ends with %d", code)
		}
		contains(t, out+errOut, "t_local_message_archive: there is no such table", "nothing was written")
		for range 2 { // the second time they are there
			if out, errOut, code := l.Command(t, "migrate"); code != 0 {
				t.Fatalf("migrate: %d, %s%s", code, out, errOut)
			}
		}
		l.preview(sent, failed)

		tx, err := l.sql.Begin()
		testkit.Must(t, err)
		_, err = tx.Exec("SELECT id FROM t_local_message WHERE id = 17 FOR UPDATE")
		testkit.Must(t, err)
		l.load.Shown = true
		l.Start(t)
		l.load.Run(t, 400, 3)
		l.wait("the rows to be moved", func() bool { return l.rowsIn("_archive") == sent-1 && l.rowsIn("_failed") == failed })
		testkit.Must(t, tx.Rollback())
		if out, errOut, code := l.Command(t, "retention"); code != 0 {
			t.Fatalf("retention: %d, %s%s", code, out, errOut)
		}
		l.wait("the row that was locked", func() bool { return l.rowsIn("_archive") == sent && l.rowsIn("") == 0 })
		l.load.Run(t, 50, 1)
		if n := l.settled().Duplicates(); n != 0 {
			t.Errorf("%d copies", n)
		}
		moved := l.metricBy("retention_rows_total", "action")
		l.wait("what was moved to be counted", func() bool { // after it was moved
			moved = l.metricBy("retention_rows_total", "action")
			return moved["archived"] >= sent
		})
		if moved["archived"] != sent || moved["logged"] != failed || moved["skipped"] != 1 || moved["deleted"] != 0 {
			t.Errorf("counted %v", moved)
		}
		if n := l.metricBy("sweep_runs_total", "result")["complete"]; n > 3 { // of the start; the load hides nothing from the log
			t.Errorf("%v sweeps: our own deletions cause them; deferred %v, swept %v", n, l.metricBy("deferred_total", "cause"), l.metricBy("sweep_rows_total", "result"))
		}
		s, err := l.Status()
		testkit.Must(t, err)
		if s.Retention == nil || s.Retention.Error != "" || s.Retention.LastSeconds == nil {
			t.Errorf("status shows %+v", s.Retention)
		}
	})
}

// preview asks without a running relay what would leave.
func (l *stage) preview(sent, failed int) {
	l.t.Helper()
	out, errOut, code := l.Command(l.t, "retention", "--dry-run", "-o", "json")
	var all []app.Leaving
	if err := json.Unmarshal([]byte(out), &all); code != 0 || err != nil || len(all) != 2 {
		l.t.Fatalf("the preview: %d, %v, %s%s", code, err, out, errOut)
	}
	if all[0].Rows != sent || all[0].Into != l.table.FullName()+"_archive" || all[1].Rows != failed || all[1].Status != "failed" || all[0].AtLeast {
		l.t.Errorf("the preview shows %+v", all)
	}
	if l.rowsIn("") != sent+failed {
		l.t.Error("the preview has changed the table")
	}
}

// D19: kill -9 between copy and deletion leaves each row in exactly one table.
func TestD19_KillBetweenCopyAndDeletion(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		const rows = 30
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), "retention: {archive: 1h}")
		l.old(2, rows)
		if out, errOut, code := l.Command(t, "migrate"); code != 0 {
			t.Fatalf("migrate: %d, %s%s", code, out, errOut)
		}
		schema := l.table.Schema
		l.exec("CREATE TRIGGER slow BEFORE DELETE ON t_local_message FOR EACH ROW DO GET_LOCK('" + schema + "', 60)")
		holder, err := l.sql.Conn(t.Context())
		testkit.Must(t, err)
		_, err = holder.ExecContext(t.Context(), "DO GET_LOCK('"+schema+"', 0)")
		testkit.Must(t, err)
		l.Start(t)
		waiting := func() (n int) {
			testkit.Must(t, l.sql.QueryRow("SELECT COUNT(*) FROM "+l.db.Processlist()+" WHERE STATE = 'User lock' AND INFO LIKE '%"+schema+"%'").Scan(&n))
			return n
		}
		l.wait("the deletion", func() bool { return waiting() > 0 })
		l.Kill()
		_, err = holder.ExecContext(t.Context(), "DO RELEASE_LOCK('"+schema+"')")
		testkit.Must(t, err)
		testkit.Must(t, holder.Close())
		l.wait("the end of the session", func() bool { return waiting() == 0 })
		l.wait("the rollback", func() bool { return l.free() })
		if l.rowsIn("") != rows || l.rowsIn("_archive") != 0 {
			t.Errorf("%d rows and %d copies", l.rowsIn(""), l.rowsIn("_archive"))
		}
		l.exec("DROP TRIGGER slow")
		l.Start(t)
		l.wait("the archive", func() bool { return l.rowsIn("") == 0 && l.rowsIn("_archive") == rows })
	})
}

// free reports whether no session holds a lock of an old row.
func (l *stage) free() bool {
	l.t.Helper()
	if l.db.Before(8, 0) { // it has no SKIP LOCKED: the statement waits instead
		return l.number("SELECT COUNT(*) FROM (SELECT id FROM t_local_message WHERE biz_type = 'old' FOR UPDATE) AS t") == l.rowsIn("")
	}
	n := l.number("SELECT COUNT(*) FROM (SELECT id FROM t_local_message WHERE biz_type = 'old' FOR UPDATE SKIP LOCKED) AS t")
	return n == l.rowsIn("")
}
