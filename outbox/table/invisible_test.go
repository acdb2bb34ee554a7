package table

import (
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A59: a table without a primary key gets one from MySQL that is invisible, the first of the columns, and hidden from the
// information schema where a session wants it so. A table with a unique key over columns that are NOT NULL gets none, which
// is what the presets have; so this one has lost its unique key. With another column as the id it is refused; with the
// server's key as the id it works, where that is not hidden.
func TestA59_GeneratedInvisibleKey(t *testing.T) {
	for shown, hidden := range map[string]bool{"ON": false, "OFF": true} {
		t.Run("shown="+shown, func(t *testing.T) {
			b := newBench(t, testkit.MySQL)
			b.db.SetMaxOpenConns(1) // one session, for the settings below
			testkit.Exec(b, b.db, "SET SESSION sql_generate_invisible_primary_key = ON")
			testkit.Exec(b, b.db, "SET SESSION show_gipk_in_create_table_and_information_schema = "+shown)
			ddl, err := migrations.DDL("outbox", b.schema+".outbox")
			testkit.Must(b, err)
			for _, change := range [][2]string{
				{"PRIMARY KEY (id)", "UNIQUE KEY uk_id (id)"},
				{"NOT NULL AUTO_INCREMENT", "NULL"}, // the server allows no second column that counts
				{"UNIQUE KEY uk_message", "KEY uk_message"},
			} {
				if ddl = strings.Replace(ddl, change[0], change[1], 1); !strings.Contains(ddl, change[1]) {
					t.Fatalf("%s is not in the statement", change[0])
				}
			}
			testkit.Exec(b, b.db, ddl)
			b.name = "`" + b.schema + "`.`outbox`"

			m := b.mapping("outbox")
			if f := b.finding(m, ".id"); f.Severity != server.Fault || !strings.Contains(f.What, "primary key") {
				t.Errorf("the id is not the primary key: %+v", f)
			}
			m.Set(ID, "my_row_id")
			if hidden {
				if f := b.finding(m, ".my_row_id"); f.Severity != server.Fault || !strings.Contains(f.What, "no such column") {
					t.Errorf("the key that is hidden: %+v", f)
				}
				return
			}
			bound, findings, err := Load(b.ctx, b.db, m)
			testkit.Must(b, err)
			if bound == nil {
				t.Fatalf("the key as the id: %+v", findings)
			}
			b.use(bound)
			testkit.Exec(b, b.db, "INSERT INTO "+b.name+" (biz_type, biz_key, topic, message_body) VALUES ('order', 'a', 'orders', 'x')")
			found := b.due(DueQuery{ExpiredClaims: time.Minute})
			if len(found) != 1 || found[0].ID != "1" || found[0].MessageID != "order:a:1" {
				t.Fatalf("due: %+v", found)
			}
			id := found[0].Identity
			stamp, err := b.store.Claim(b.ctx, found)
			testkit.Must(b, err)
			messages, _, err := b.store.ReadBack(b.ctx, stamp, []outbox.Identity{id})
			testkit.Must(b, err)
			if len(messages) != 1 || messages[0].Identity != id || string(messages[0].Body) != "x" {
				t.Fatalf("read back: %+v", messages)
			}
			b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
			var status int
			testkit.Must(b, b.db.QueryRow("SELECT status FROM "+b.name+" WHERE my_row_id = 1").Scan(&status))
			if status != 2 {
				t.Errorf("status %d", status)
			}
		})
	}
}
