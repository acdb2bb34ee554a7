package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A26: the columns change while the relay runs and while it is down. Every row comes out with the right values under the
// right names, once. Where the log names the columns none needs the sweep.
func TestA26_ColumnsChange(t *testing.T) {
	changes := []string{
		"ALTER TABLE t_local_message ADD COLUMN extra VARCHAR(255) NOT NULL DEFAULT 'no topic' FIRST",
		"ALTER TABLE t_local_message DROP COLUMN extra, ADD COLUMN other VARCHAR(255) NULL AFTER biz_type",
		// The same number and types of columns in another order.
		"ALTER TABLE t_local_message MODIFY COLUMN topic VARCHAR(255) NOT NULL AFTER other",
		"ALTER TABLE t_local_message DROP COLUMN created_by",
	}
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		for metadata, server := range map[string]func() *testkit.Database{
			"names":    func() *testkit.Database { return testkit.SharedDatabase(t, flavor) },
			"nameless": func() *testkit.Database { return nameless(t, flavor) },
		} {
			t.Run(metadata, func(t *testing.T) {
				l := newLab(t, server())
				l.start()
				var want []string
				round := func(i int, when string) {
					before, after := keys(fmt.Sprintf("before%d%s", i, when), 20), keys(fmt.Sprintf("after%d%s", i, when), 20)
					l.commit(before...)
					l.exec(changes[i])
					l.commit(after...)
					want = append(append(want, before...), after...)
				}
				for i := range changes {
					round(i, "running")
				}
				l.account(want...)
				if n := l.deferred("unmapped"); n != 0 {
					t.Errorf("%d rows were deferred", n)
				}
				l.stop()
				l.exec("DROP TABLE t_local_message")
				l.tables = nil
				l.table("t_local_message")
				for i := range changes {
					round(i, "down")
				}
				l.start()
				l.commit("last")
				// The rows of the first table are gone with it, and in the broker.
				l.account(append(want, "last")...)
				if n := l.deferred("unmapped"); n != 0 {
					t.Errorf("%d rows were deferred", n)
				}
			})
		}
	})
}

// A27: an online schema change in the manner of pt-online-schema-change, with producers and acknowledgements at work:
// triggers carry every change to a copy of the table, which then takes the name over. Rows of the copy are no messages.
func TestA27_OnlineSchemaChange(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start()
		want := keys("load", 1500)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; i < len(want); i += 3 {
				if err := patiently(l, insert(want[i:i+3]...)); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		l.wait("some load", func() bool { return l.count() > 200 })
		migrateOnline(l)
		at := l.count()
		l.wait("more load", func() bool { return l.count() > at+100 })
		<-done
		l.account(want...)
		l.exec("SELECT extra FROM t_local_message LIMIT 1")
	})
}

func (l *lab) count() (n int) {
	l.t.Helper()
	testkit.Must(l.t, l.sql.QueryRow("SELECT COUNT(*) FROM t_local_message").Scan(&n))
	return n
}

// patiently repeats a statement that met a deadlock or a lock of the migration.
func patiently(l *lab, statement string) error {
	for {
		_, err := l.sql.Exec(statement)
		var answer *mysql.MySQLError
		if errors.As(err, &answer) && (answer.Number == 1213 || answer.Number == 1205) {
			continue
		}
		return err
	}
}

func migrateOnline(l *lab) {
	l.t.Helper()
	var names string
	testkit.Must(l.t, l.sql.QueryRowContext(context.Background(), "SELECT GROUP_CONCAT(COLUMN_NAME ORDER BY ORDINAL_POSITION) FROM information_schema.COLUMNS "+
		"WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 't_local_message'", l.schema).Scan(&names))
	into := "REPLACE INTO _t_local_message_new (" + names + ") VALUES (NEW." + strings.ReplaceAll(names, ",", ", NEW.") + ")"
	for _, statement := range []string{
		"CREATE TABLE _t_local_message_new LIKE t_local_message",
		"ALTER TABLE _t_local_message_new ADD COLUMN extra INT NOT NULL DEFAULT 7 FIRST",
		"CREATE TRIGGER osc_del AFTER DELETE ON t_local_message FOR EACH ROW DELETE FROM _t_local_message_new WHERE id = OLD.id",
		"CREATE TRIGGER osc_upd AFTER UPDATE ON t_local_message FOR EACH ROW " + into,
		"CREATE TRIGGER osc_ins AFTER INSERT ON t_local_message FOR EACH ROW " + into,
		"INSERT IGNORE INTO _t_local_message_new (" + names + ") SELECT " + names + " FROM t_local_message LOCK IN SHARE MODE",
		"RENAME TABLE t_local_message TO _t_local_message_old, _t_local_message_new TO t_local_message",
		"DROP TABLE _t_local_message_old",
	} {
		if err := patiently(l, statement); err != nil {
			l.t.Fatalf("%s: %v", statement, err)
		}
	}
}
