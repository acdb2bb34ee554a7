package table_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// A table that needs seven changes is changed by one statement. After it there is nothing to say about the table, and the comments, defaults
// and updates of its columns are what they were.
func TestG45_OneAlterTableKeepsCommentsAndDefaults(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			schema := db.CreateSchema(t)
			client := db.Connect(t, schema)
			testkit.Exec(t, client, `CREATE TABLE odd (
				id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'the key',
				biz_type VARCHAR(64) CHARACTER SET big5 NOT NULL DEFAULT 'a, b' COMMENT 'it''s "typed", COMMENT ''x''',
				biz_key VARCHAR(64) CHARACTER SET big5 COLLATE big5_bin NOT NULL COMMENT 'key',
				topic VARCHAR(64) NOT NULL DEFAULT 'orders' COMMENT 'topic',
				message_body JSON NULL COMMENT 'body',
				status TINYINT NOT NULL DEFAULT 0 COMMENT '0 to 3',
				retry_count INT NOT NULL DEFAULT 0,
				next_retry_time DATETIME NULL DEFAULT NULL COMMENT 'due',
				last_exec_time DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT 'last, CURRENT_TIMESTAMP',
				fail_reason VARCHAR(20) CHARACTER SET latin1 NOT NULL DEFAULT 'none' COMMENT 'why'
			) COMMENT 'ours'`)
			describeAll := func() string {
				var all []string
				rows, err := client.Query("SELECT COLUMN_NAME, COALESCE(COLUMN_DEFAULT, 'NULL'), COLUMN_COMMENT, IS_NULLABLE, EXTRA FROM information_schema.COLUMNS "+
					"WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 'odd' AND COLUMN_NAME <> 'gmt_create' ORDER BY ORDINAL_POSITION", schema)
				testkit.Must(t, err)
				defer rows.Close()
				for rows.Next() {
					var line [5]string
					testkit.Must(t, rows.Scan(&line[0], &line[1], &line[2], &line[3], &line[4]))
					if line[0] == "last_exec_time" { // whose digits change, and those of its default with them
						line[1], line[4] = strings.ToLower(strings.ReplaceAll(line[1], "(3)", "")), strings.ToLower(strings.ReplaceAll(line[4], "(3)", ""))
						line[1], line[4] = strings.TrimSuffix(line[1], "()"), strings.TrimSuffix(line[4], "()")
					}
					all = append(all, fmt.Sprintf("%q", line))
				}
				testkit.Must(t, rows.Err())
				return strings.Join(all, "\n")
			}
			look := func() (all []server.Finding) {
				m, err := table.Preset("t_local_message")
				testkit.Must(t, err)
				m.Schema, m.Name = schema, "odd"
				_, all, err = table.Load(t.Context(), client, m)
				testkit.Must(t, err)
				return slices.DeleteFunc(all, func(f server.Finding) bool { return f.Severity == server.OK })
			}
			found, before := look(), describeAll()
			var statements []string
			for _, f := range found {
				if f.SQL != "" {
					statements = append(statements, f.SQL)
				} else if !strings.HasSuffix(f.Fix, ".odd above") {
					t.Errorf("neither a statement nor a reference to one: %+v", f)
				}
			}
			if len(statements) != 1 || len(found) < 6 {
				t.Fatalf("%d statements for %d findings: %q", len(statements), len(found), statements)
			}
			t.Log(statements[0])
			testkit.Exec(t, client, statements[0])
			if again := look(); len(again) > 0 {
				t.Errorf("after its own statement: %+v", again)
			}
			if after := describeAll(); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
			var comment string
			testkit.Must(t, client.QueryRow("SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 'odd'", schema).Scan(&comment))
			if comment != "ours" {
				t.Errorf("the table's comment is %q", comment)
			}
		})
	}
}
