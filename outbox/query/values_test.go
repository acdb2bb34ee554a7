package query

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Values of the status column that no name stands for are a warning with their rows; states that the owners named are not. A table without a
// code for FAILED gets a suggestion that no row uses.
func TestG18_G21_StatusValues(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			schema := db.CreateSchema(t)
			client := db.Connect(t, schema)
			testkit.Exec(t, client, `CREATE TABLE words (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, message_key VARCHAR(64) NOT NULL, message_type VARCHAR(64) NOT NULL,
				message_id VARCHAR(64) NULL, topic VARCHAR(64) NOT NULL, message_body TEXT NOT NULL, state VARCHAR(16) NULL, retry_count INT NOT NULL DEFAULT 0,
				next_retry_at DATETIME NULL, last_retry_time DATETIME(3) NULL, fail_reason TEXT NULL, lock_version BIGINT NOT NULL DEFAULT 0, gmt_create DATETIME NOT NULL,
				gmt_modified DATETIME NOT NULL, KEY (state), UNIQUE KEY (message_key, message_type)) DEFAULT CHARACTER SET utf8mb4`)
			testkit.Exec(t, client, `CREATE TABLE numbers (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, message_id VARCHAR(64) NOT NULL, topic VARCHAR(64) NOT NULL,
				content TEXT NOT NULL, state TINYINT NOT NULL DEFAULT 0, retry_count INT NOT NULL DEFAULT 0, max_retry_count INT NOT NULL DEFAULT 5,
				next_retry_time DATETIME NULL, create_time DATETIME NOT NULL, update_time DATETIME NOT NULL, UNIQUE KEY (message_id), KEY (state, next_retry_time))`)
			for i, state := range []any{"待发送", "待发送", "0", nil, "consumed", "sent"} {
				testkit.Exec(t, client, "INSERT INTO words (message_key, message_type, topic, message_body, state, gmt_create, gmt_modified) VALUES (?, 'o', 't', 'x', ?, NOW(), NOW())", i, state)
			}
			testkit.Exec(t, client, "INSERT INTO numbers (message_id, topic, content, state, create_time, update_time) VALUES ('a', 't', 'x', 3, NOW(), NOW()), ('b', 't', 'x', 2, NOW(), NOW())")
			look := func(preset, name string) []server.Finding {
				t.Helper()
				m, err := table.Preset(preset)
				testkit.Must(t, err)
				m.Schema, m.Name = schema, name
				bound, findings, err := table.Load(t.Context(), client, m)
				testkit.Must(t, err)
				if bound == nil {
					t.Fatalf("%+v", findings)
				}
				found, err := CheckStatusValues(t.Context(), client, bound)
				testkit.Must(t, err)
				return found
			}
			found := look("message-state", "words")
			if len(found) != 2 || found[1].Severity != server.Warning || found[0].Fix != "" {
				t.Fatalf("%+v", found)
			}
			for _, words := range []string{`"待发送" (2 rows)`, `"0" (1 row)`, "NULL (1 row)"} {
				if !strings.Contains(found[1].What, words) {
					t.Errorf("%q is not in %s", words, found[1].What)
				}
			}
			if strings.Contains(found[1].What, "consumed") || !strings.Contains(found[0].What, `"consumed" consumed (1 row)`) || !strings.Contains(found[1].Fix, `codes: {pending: "待发送"}`) {
				t.Errorf("%+v", found)
			}
			found = look("local_message_table", "numbers")
			if len(found) != 2 || !strings.Contains(found[1].What, `"3" (1 row)`) || !strings.Contains(found[0].Fix, "codes: {failed: 4}") {
				t.Errorf("a code that no row uses: %+v", found)
			}
			testkit.Exec(t, client, "DELETE FROM numbers WHERE state = 3")
			if found = look("local_message_table", "numbers"); len(found) != 1 || !strings.Contains(found[0].Fix, "codes: {failed: 3}") {
				t.Errorf("%+v", found)
			}
		})
	}
}
