package store

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// What is in the way is found before anything leaves, with what fixes it; the fix works.
func TestD19_CheckRetention(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		faults := func(of ...table.Expiry) (text string, fixes []string) {
			findings, _, err := CheckRetention(b.Ctx, b.DB, b.Table, of)
			testkit.Must(b, err)
			for _, f := range findings {
				if f.Severity == server.Fault {
					text += f.Subject + ": " + f.What + "\n"
					fixes = append(fixes, f.Fix)
				}
			}
			return text, fixes
		}
		if text, _ := faults(sentWeek); text != "" {
			b.Fatal(text)
		}
		text, fixes := faults(sentMoves, logged)
		if strings.Count(text, "there is no such table") != 2 || !strings.Contains(text, "outbox_archive") || !strings.Contains(text, "outbox_failed") {
			b.Fatal(text)
		}
		for _, fix := range fixes {
			_, statements, _ := strings.Cut(fix, "run:\n")
			for statement := range strings.SplitSeq(statements, ";\n") {
				testkit.Exec(b, b.DB, statement)
			}
		}
		if text, _ := faults(sentMoves, logged); text != "" {
			b.Fatalf("after what fixes it: %s", text)
		}
		testkit.Exec(b, b.DB, "ALTER TABLE outbox_archive DROP COLUMN tag, MODIFY topic VARCHAR(20) NOT NULL, MODIFY fail_reason VARCHAR(1024) NOT NULL, ADD COLUMN must INT NOT NULL")
		text, fixes = faults(sentMoves)
		for _, want := range []string{
			".tag: there is no such column", ".topic: it is varchar(20)", ".fail_reason: it is varchar(1024)", ".must: it has no default",
		} {
			if !strings.Contains(text, "outbox_archive"+want) {
				b.Errorf("%q is not in:\n%s", want, text)
			}
		}
		if len(fixes) != 4 || slices.ContainsFunc(fixes[1:], func(fix string) bool { return strings.HasPrefix(fix, "ALTER TABLE") }) {
			b.Errorf("not one ALTER TABLE for the table: %q", fixes)
		}
		testkit.Exec(b, b.DB, fixes[0])
		if text, _ := faults(sentMoves); text != "" {
			b.Errorf("after what fixes it: %s", text)
		}
	})
}

// The account needs DELETE, and INSERT where rows move to; each missing one is a fault with its GRANT.
func TestRetentionNeedsGrants(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.MakeMoved(table.ArchiveSuffix)
		user := "leaving_" + b.Schema
		testkit.Must(b, b.Server.CreateUser(b.Ctx, user, "secret", "SELECT, UPDATE ON "+b.Schema+".*", "REPLICATION SLAVE ON *.*", "REPLICATION CLIENT ON *.*"))
		b.Cleanup(func() { testkit.Exec(b, b.Server.Root(), "DROP USER "+user) })
		db, err := server.Open(server.Config{Address: b.Server.Addr(), User: user, Password: setting.NewSecret("secret")}, nil, server.Session{MaxConns: 1})
		testkit.Must(b, err)
		defer db.Close()
		fixes := func() (all []string) {
			info, err := server.Inspect(b.Ctx, db)
			testkit.Must(b, err)
			_, probes, err := CheckRetention(b.Ctx, db, b.Table, []table.Expiry{sentMoves})
			testkit.Must(b, err)
			findings, err := info.Grants(b.Ctx, db, probes)
			testkit.Must(b, err)
			for _, f := range findings {
				if f.Severity == server.Fault {
					all = append(all, f.Fix)
				}
			}
			return all
		}
		missing := fixes()
		if len(missing) != 2 || !strings.Contains(missing[0], "GRANT SELECT, INSERT ON `"+b.Schema+"`.`outbox_archive`") || !strings.Contains(missing[1], "GRANT DELETE ON `"+b.Schema+"`.`outbox`") {
			b.Fatalf("%q", missing)
		}
		for _, grant := range missing {
			testkit.Exec(b, b.Server.Root(), grant)
		}
		if missing := fixes(); len(missing) != 0 {
			b.Errorf("%q", missing)
		}
		store := New(db, []*table.Table{b.Table}, nil, nil)
		ids := keys(b.Insert(3, "status=2, last_exec_time=NOW(3) - INTERVAL 8 DAY"))
		if left, err := store.Expire(b.Ctx, b.table.Name(), sentMoves, ids); err != nil || left.Rows != 3 {
			b.Errorf("%+v, %v", left, err)
		}
	})
}

// The length of the history list: a number for those who may see it.
func TestHistory(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		length, known, err := b.store.History(b.Ctx)
		if err != nil || !known || length < 0 {
			b.Errorf("%d, %v, %v", length, known, err)
		}
		user := "blind_" + b.Schema
		testkit.Must(b, b.Server.CreateUser(b.Ctx, user, "secret"))
		b.Cleanup(func() { testkit.Exec(b, b.Server.Root(), "DROP USER "+user) })
		var db *sql.DB
		db, err = server.Open(server.Config{Address: b.Server.Addr(), User: user, Password: setting.NewSecret("secret")}, nil, server.Session{MaxConns: 1})
		testkit.Must(b, err)
		defer db.Close()
		if _, known, err := server.HistoryLength(b.Ctx, db); err != nil || known != (b.Server.Flavor == testkit.MariaDB) {
			b.Errorf("without PROCESS: known %v, %v", known, err)
		}
	})
}
