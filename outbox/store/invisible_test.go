package store

import (
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// A59: a table without a primary key gets one from MySQL that is invisible, the first of the columns, and hidden from the
// information schema where a session wants it so. A table with a unique key over columns that are NOT NULL gets none, which
// is what the presets have; so this one has lost its unique key. With another column as the id it is refused; with the
// server's key as the id it works, where that is not hidden.
func TestA59_GeneratedInvisibleKey(t *testing.T) {
	for shown, hidden := range map[string]bool{"ON": false, "OFF": true} {
		t.Run("shown="+shown, func(t *testing.T) {
			b := newBench(t, testkit.Needs(t, testkit.MySQL, "8.0", "generated keys"))
			b.DB.SetMaxOpenConns(1) // one session, for the settings below
			testkit.Exec(b, b.DB, "SET SESSION sql_generate_invisible_primary_key = ON")
			testkit.Exec(b, b.DB, "SET SESSION show_gipk_in_create_table_and_information_schema = "+shown)
			ddl, err := migrations.DDL("outbox", b.Schema+".outbox")
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
			testkit.Exec(b, b.DB, ddl)
			b.Quoted = "`" + b.Schema + "`.`outbox`"

			m := b.Mapping("outbox")
			if f := b.Finding(m, ".id"); f.Severity != server.Fault || !strings.Contains(f.What, "primary key") {
				t.Errorf("the id is not the primary key: %+v", f)
			}
			m.Set(table.ID, "my_row_id")
			if hidden {
				if f := b.Finding(m, ".my_row_id"); f.Severity != server.Fault || !strings.Contains(f.What, "no such column") {
					t.Errorf("the key that is hidden: %+v", f)
				}
				return
			}
			bound, findings, err := table.Load(b.Ctx, b.DB, m)
			testkit.Must(b, err)
			if bound == nil {
				t.Fatalf("the key as the id: %+v", findings)
			}
			b.Use(bound)
			testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (biz_type, biz_key, topic, message_body) VALUES ('order', 'a', 'orders', 'x')")
			found := b.due(table.DueQuery{ExpiredClaims: time.Minute})
			if len(found) != 1 || found[0].ID != "1" || found[0].MessageID != "order:a:1" {
				t.Fatalf("due: %+v", found)
			}
			id := found[0].Identity
			stamp, err := b.store.Claim(b.Ctx, found)
			testkit.Must(b, err)
			messages, _, err := b.store.ReadBack(b.Ctx, stamp, []outbox.Identity{id})
			testkit.Must(b, err)
			if len(messages) != 1 || messages[0].Identity != id || string(messages[0].Body) != "x" {
				t.Fatalf("read back: %+v", messages)
			}
			b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
			var status int
			testkit.Must(b, b.DB.QueryRow("SELECT status FROM "+b.Quoted+" WHERE my_row_id = 1").Scan(&status))
			if status != 2 {
				t.Errorf("status %d", status)
			}
		})
	}
}
