package canal

import (
	"context"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// A59: the row events of a table with a key that MySQL generated begin with that key. Mapped as the id it shifts no other column,
// with and without column names in the log. Where the log has no names and the server hides the key from queries for the columns,
// rows are left to the sweep.
func TestA59_GeneratedInvisibleKey(t *testing.T) {
	for _, c := range []struct {
		name, metadata, shown, published string
		causes                           map[outbox.Cause]int
	}{
		{"names", "FULL", "ON", "a,b", nil},
		{"names and hidden", "FULL", "OFF", "a,b", nil},
		{"nameless", "MINIMAL", "ON", "a,b", nil},
		{"nameless and hidden", "MINIMAL", "OFF", "", map[outbox.Cause]int{outbox.CauseUnmapped: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := testkit.SharedDatabase(t, testkit.Needs(t, testkit.MySQL, "8.0", "generated keys"))
			setGlobal(t, db, "binlog_row_metadata", c.metadata)
			l := newLab(t, db)
			l.exec("DROP TABLE t_local_message")
			ddl := strings.Replace(outboxDDL, "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY", "BIGINT UNSIGNED NULL", 1)
			ddl = strings.Replace(ddl, "UNIQUE KEY", "KEY", 1) // else the server adds no key of its own
			l.session("SET SESSION sql_generate_invisible_primary_key = ON", ddl)
			m, err := table.Preset("t_local_message")
			testkit.Must(t, err)
			m.Schema, m.Name = l.schema, "t_local_message"
			m.Set(table.ID, "my_row_id")
			var findings any
			l.table, findings, err = table.Load(context.Background(), l.sql, m)
			testkit.Must(t, err)
			if l.table == nil {
				t.Fatalf("the table does not fit: %+v", findings)
			}
			setGlobal(t, db, "show_gipk_in_create_table_and_information_schema", c.shown)
			l.start(l.end())
			l.insert("a")
			l.exec(insertRow, "b", "body of b")
			l.caughtUp()
			if got := joined(l.rec.keys()); got != c.published {
				t.Errorf("published %q, want %q", got, c.published)
			}
			for cause, n := range c.causes {
				if got := l.rec.causes()[cause]; got != n {
					t.Errorf("%d rows deferred as %s, want %d", got, cause, n)
				}
			}
			for i, m := range l.rec.sent() {
				if want := string("ab"[i]); m.ID != string("12"[i]) || m.MessageID != "order:"+want+":"+m.ID || string(m.Body) != "body of "+want || m.Topic != "orders" {
					t.Errorf("row %s came as %+v", want, m)
				}
			}
		})
	}
}
