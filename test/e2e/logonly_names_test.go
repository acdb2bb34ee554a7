package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// alter changes every table; %s is its name.
func (l *logOnly) alter(statements ...string) {
	l.t.Helper()
	for _, layout := range l.all {
		for _, statement := range statements {
			l.exec(strings.ReplaceAll(statement, "%s", layout.Table))
		}
	}
}

// A26: with the server's default, a log without column names, tables without a status are published through changes of their columns, an
// online schema change, a kill and a stop. Rows between two changes, the first of which is not understood, hold the reader; the problem
// says how to continue.
func TestLogOnlyWithoutColumnNames(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		l, _ := newLogOnlyOn(t, nameless(t, flavor))
		l.Start(t)
		l.event(1, "orders", deletes)
		l.alter("ALTER TABLE %s MODIFY aggregateid VARCHAR(255) NOT NULL FIRST")
		l.event(2, "orders", deletes)
		l.alter("CREATE TABLE _%s_gho LIKE %s", "ALTER TABLE _%s_gho ADD x VARCHAR(255) NOT NULL DEFAULT 'x' FIRST, MODIFY type VARCHAR(255) NOT NULL AFTER id",
			"RENAME TABLE %s TO _%s_del, _%s_gho TO %s", "DROP TABLE _%s_del")
		l.event(3, "orders", deletes)
		l.has("orders", 1, 3)
		l.Kill()
		l.event(4, "orders", deletes)
		l.alter("ALTER TABLE %s DROP x, MODIFY type VARCHAR(255) NOT NULL FIRST", "ALTER TABLE %s MODIFY aggregatetype VARCHAR(255) NOT NULL AFTER type")
		l.event(5, "orders", deletes)
		l.Start(t)
		l.has("orders", 4, 5)
		out, _, _ := l.Command(t, "doctor")
		if words := "behind an ALTER TABLE in the log that is not understood, the reader stops"; !strings.Contains(strings.Join(strings.Fields(out), " "), words) {
			t.Errorf("doctor does not say %q:\n%s", words, out)
		}
		l.stopInTime()

		table := l.all[0].Table
		notRead(t, l.sql, "ALTER TABLE "+table+" ADD x INT COMMENT '\x83\x5c' FIRST")
		l.event(6, "orders", deletes)
		l.exec("ALTER TABLE " + table + " MODIFY aggregateid VARCHAR(255) NOT NULL FIRST")
		l.event(7, "orders", deletes)
		l.Launch(t)
		text := l.problem("the reader is stopped", fmt.Sprintf("rows of %s.%s", l.schema(), table), "columns cannot be named with certainty")
		_, command, found := strings.Cut(text, "canal-outbox checkpoint ")
		if !found {
			t.Fatal(text)
		}
		command, _, _ = strings.Cut(command, ";")
		if out, errOut, code := l.Command(t, append([]string{"checkpoint"}, strings.Fields(command+" --yes")...)...); code != 0 {
			t.Errorf("exit %d: %s%s", code, out, errOut)
		}
		l.has("orders", 7, 7)
		l.stopInTime()
	})
}
