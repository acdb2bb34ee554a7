package canal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A34: what a rollback leaves in the log when the transaction also changed a table that cannot roll back, in every format.
// MariaDB logs rows that were rolled back, also with ROW: row events of mapped tables in a group that ends with ROLLBACK or
// returns to a savepoint. MySQL, which allows such transactions only without enforced GTIDs, does so with STATEMENT only. A row
// that was rolled back is never offered; the remaining rows of the group are offered or deferred.
func TestA34_RolledBackGroups(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		options := testkit.DatabaseOptions{Flavor: flavor}
		if flavor == testkit.MySQL {
			options.Args = []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}
		}
		db := testkit.NewDatabase(t, options)
		endings := map[string]bool{}
		for _, format := range []string{"ROW", "MIXED", "STATEMENT"} {
			t.Run(format, func(t *testing.T) {
				l := newLab(t, db)
				l.exec("CREATE TABLE plain (id INT) ENGINE=MyISAM")
				l.start(l.end())
				from := l.end()
				// UUID() makes MIXED log a statement as rows.
				ours := func(key string) string {
					return strings.Replace(rowSQL(key), "'body of "+key+"'", "UUID()", 1)
				}
				conn := l.session("SET SESSION binlog_format = '"+format+"'",
					"BEGIN", ours("never1"), "INSERT INTO plain VALUES (1)", ours("never2"), "ROLLBACK",
					"BEGIN", "INSERT INTO plain VALUES (2)", ours("never3"), "ROLLBACK",
					"BEGIN", ours("kept1"), "SAVEPOINT s", ours("never4"), "INSERT INTO plain VALUES (3)", "ROLLBACK TO SAVEPOINT s", ours("kept2"), "COMMIT",
					"BEGIN", ours("never5"), "CREATE TEMPORARY TABLE passing (id INT)", "DROP TEMPORARY TABLE passing", "ROLLBACK")
				l.on(conn, "SET SESSION binlog_format = 'ROW'", rowSQL("after"))
				keys := l.fence()
				for _, key := range keys {
					if strings.HasPrefix(key, "never") {
						t.Errorf("%s was published and is not in the table", key)
					}
				}
				if all := joined(keys); all != "kept1,kept2,after" && (all != "after" || len(l.rec.left()) == 0) {
					t.Errorf("published %q, deferred %v", keys, l.rec.left())
				}
				found := l.endings(from.File, from.Offset)
				for _, ending := range found {
					endings[ending] = true
				}
				t.Logf("published %q, deferred %v, the log has %q", keys, l.rec.causes(), found)
			})
		}
		shown := "rows ROLLBACK"
		if flavor == testkit.MySQL {
			shown = "statements ROLLBACK"
		}
		if !endings[shown] {
			t.Errorf("no group with %s, only %v: nothing was shown", shown, endings)
		}
	})
}

// endings returns how the groups after a position of the log end, each kind with and without row events.
func (l *lab) endings(file string, from uint64) (found []string) {
	l.t.Helper()
	rows, err := l.db.Root().Query(fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' FROM %d", file, from))
	testkit.Must(l.t, err)
	defer rows.Close()
	seen, content := map[string]bool{}, "statements"
	for rows.Next() {
		var name, kind, info string
		var position, serverID, end uint64
		testkit.Must(l.t, rows.Scan(&name, &position, &kind, &serverID, &end, &info))
		switch {
		case strings.HasPrefix(info, "BEGIN"):
			content = "statements"
		case strings.HasPrefix(kind, "Write_rows"):
			content = "rows"
		case strings.HasPrefix(info, "ROLLBACK TO"):
			seen[content+" ROLLBACK TO"] = true
		case strings.HasPrefix(info, "ROLLBACK"), strings.HasPrefix(info, "COMMIT"):
			seen[content+" "+strings.Fields(info)[0]] = true
		case kind == "Xid":
			seen[content+" XID"] = true
		}
	}
	testkit.Must(l.t, rows.Err())
	for _, ending := range []string{"rows ROLLBACK", "statements ROLLBACK", "rows ROLLBACK TO", "statements ROLLBACK TO", "rows COMMIT", "statements COMMIT", "rows XID", "statements XID"} {
		if seen[ending] {
			found = append(found, ending)
		}
	}
	return found
}
