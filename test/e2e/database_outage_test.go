package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// The database goes away, and then takes no writes, while acknowledgements wait: the journal keeps them, over a kill as well,
// and nothing is published twice.
func TestD04_AcknowledgementsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MySQL})
	proxy := testkit.NewProxy(t, db.Addr())
	cluster := fake(t)
	l := newStageAt(t, db, proxy.Addr(), cluster, "")
	l.Start(t)
	for name, trouble := range map[string]struct{ begin, end func() }{
		"away": {
			func() { testkit.Must(t, proxy.Refuse(true)); proxy.Cut() },
			func() { testkit.Must(t, proxy.Refuse(false)) },
		},
		"read-only": {
			func() { testkit.Exec(t, db.Root(), "SET GLOBAL super_read_only = 1") },
			func() { testkit.Exec(t, db.Root(), "SET GLOBAL read_only = 0") },
		},
	} {
		before := l.load.Ledger.Len()
		cluster.Swallow(true)
		l.load.Run(t, 300, 3)
		l.wait("all rows to be in flight", func() bool { return l.inFlight() > 0 })
		trouble.begin()
		cluster.Swallow(false)
		l.wait("acknowledgements to wait: "+name, func() bool {
			s, err := l.Status()
			return err == nil && s.InFlight.Messages == 0 && s.InFlight.AckPending > 0
		})
		if n := l.table.Count(t, "status = 2"); n > before {
			t.Errorf("%s: %d rows are SENT", name, n-before)
		}
		if name == "read-only" {
			l.Kill()
		}
		trouble.end()
		if !l.Running() {
			l.Start(t)
		}
		if n := l.settled().Duplicates(); n > 0 {
			t.Errorf("%s: %d messages came twice", name, n)
		}
	}
	l.stopInTime()
}

// A row that another session has locked delays neither publishing nor the statuses of other rows. Its own status
// waits for the lock, in the journal, and is then written. No row is published twice.
func TestD07_LockedRow(t *testing.T) {
	onBothAtOnce(t, func(t *testing.T, flavor testkit.Flavor) {
		cluster := fake(t)
		l := newStage(t, testkit.SharedDatabase(t, flavor), cluster, "")
		l.load.Shown = true // the application changes rows that may be anywhere in the table, and would wait for the locked one
		l.Start(t)
		cluster.Swallow(true)
		l.row("locked", topics[0], "body")
		// Without gaps: when a page of the unique index is split at the locked row, InnoDB makes a gap lock of a row lock at
		// REPEATABLE READ, and the application's own INSERTs would wait for it.
		tx, err := l.sql.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		testkit.Must(t, err)
		_, err = tx.ExecContext(t.Context(), "SELECT id FROM t_local_message WHERE biz_type = 'order' AND biz_key = 'locked' FOR UPDATE")
		testkit.Must(t, err)
		cluster.Swallow(false)
		for range 6 { // the statement for the statuses meets the locked row repeatedly
			l.load.Run(t, 50, 2)
			want := l.load.Ledger.Len() + 1
			l.wait("the rows to be published", func() bool { return len(relay.ReadAll(t, l.broker, topics...)) >= want })
			l.waitCount(want-1, "status = 2")
		}
		l.waitCount(1, "status <> 2")
		l.wait("status to report the lock", func() bool {
			s, err := l.Status()
			return err == nil && s.State == "degraded" && slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, "the statuses of 1 row(s) wait for locks") })
		})
		if n := l.table.Count(t, "biz_key = 'locked' AND status = 0 AND retry_count = 0"); n != 1 {
			t.Error("the locked row was written")
		}
		testkit.Must(t, tx.Rollback())
		l.waitCount(0, "status <> 2 OR retry_count <> 0")
		if records := relay.ReadAll(t, l.broker, topics...); len(records) != l.load.Ledger.Len()+1 {
			t.Errorf("%d messages of %d rows", len(records), l.load.Ledger.Len()+1)
		}
		l.stopInTime()
	})
}

// The table is changed again and again while the application writes and the relay marks.
func TestD08_AlterUnderLoad(t *testing.T) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), "")
		l.load.Loose = true // rows written around a change may be left to the sweep
		l.Start(t)
		wait := l.load.Start(t, 3000, 4)
		for i, change := range []string{
			"ADD COLUMN extra INT NULL", "ADD INDEX idx_extra (extra)", "ADD COLUMN first_one INT NULL FIRST", "DROP COLUMN extra", "ENGINE = InnoDB",
		} {
			want := 500 * i
			l.wait("rows before the next change", func() bool { return l.load.Ledger.Len() >= want })
			l.exec("ALTER TABLE t_local_message " + change)
		}
		wait()
		if n := l.settled().Duplicates(); n > 0 {
			t.Errorf("%s: %d messages came twice", flavor, n)
		}
		l.stopInTime()
	}
}

const deadlock = 1213

// Another writer changes the status too: it marks rows SENT or FAILED, deletes them, claims them. A SENT row never gets another
// status, no row is left behind, and a deleted row stays deleted.
func TestD03_D20_SecondWriter(t *testing.T) {
	t.Parallel()
	l := newStage(t, testkit.SharedMySQL(t), fake(t), "")
	testkit.Exec(t, l.sql, "CREATE TABLE broken (id BIGINT, was INT, became INT)")
	testkit.Exec(t, l.sql, "CREATE TRIGGER watch AFTER UPDATE ON t_local_message FOR EACH ROW "+
		"INSERT INTO broken SELECT NEW.id, OLD.status, NEW.status FROM DUAL WHERE OLD.status = 2 AND NEW.status <> 2")
	l.Start(t)
	done, end := make(chan error, 1), make(chan struct{})
	go func() {
		for {
			for _, statement := range []string{
				"UPDATE t_local_message SET status = 2 WHERE status = 0 ORDER BY id DESC LIMIT 1",
				"UPDATE t_local_message SET status = 3, fail_reason = 'by hand' WHERE status = 0 ORDER BY id DESC LIMIT 1",
				"UPDATE t_local_message SET status = 1, last_exec_time = NOW(3) - INTERVAL 1 HOUR WHERE status = 0 ORDER BY id DESC LIMIT 1",
				"DELETE FROM t_local_message WHERE status = 0 ORDER BY id DESC LIMIT 1",
			} {
				_, err := l.sql.ExecContext(context.Background(), statement)
				var refused *mysql.MySQLError
				if errors.As(err, &refused) && refused.Number == deadlock {
					continue // it comes by the index on status, the relay by primary key: they may meet
				}
				if err != nil {
					done <- fmt.Errorf("%s: %w", statement, err)
					return
				}
			}
			select {
			case <-end:
				done <- nil
				return
			default:
			}
		}
	}()
	l.load.Run(t, 3000, 4)
	close(end)
	testkit.Must(t, <-done)
	l.waitCount(0, "status IN (0, 1)")
	broken := l.number("SELECT COUNT(*) FROM broken")
	if broken > 0 {
		t.Errorf("%d rows were SENT and then something else", broken)
	}
	sent, failed, all := l.table.Count(t, "status = 2"), l.table.Count(t, "status = 3"), l.table.Count(t, "TRUE")
	t.Logf("of %d rows %d are SENT, %d FAILED, %d deleted", l.load.Ledger.Len(), sent, failed, l.load.Ledger.Len()-all)
	if failed > 0 && l.table.Count(t, "status = 3 AND fail_reason <> 'by hand'") > 0 {
		t.Error("rows are FAILED and the second writer did not set that")
	}
	if m := l.metrics(); m["internal_errors_total"] != 0 {
		t.Errorf("%v internal errors", m["internal_errors_total"])
	}
	l.stopInTime()
}
