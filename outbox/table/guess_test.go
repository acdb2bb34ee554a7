package table_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// Tables that a preset fits are found among others, the best first; a copy of a tool, an archive, a view and a table of something else are not.
func TestCandidates(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			schema := db.CreateSchema(t)
			client := db.Connect(t, schema)
			var want []string
			for _, l := range slices.Concat(layouts.All(), layouts.LogOnly()) {
				testkit.Exec(t, client, l.Create())
				want = append(want, schema+"."+l.Table)
			}
			testkit.Exec(t, client, "CREATE TABLE _t_local_message_gho LIKE t_local_message")
			testkit.Exec(t, client, "CREATE TABLE t_local_message_archive LIKE t_local_message")
			testkit.Exec(t, client, "CREATE VIEW messages AS SELECT * FROM t_local_message")
			testkit.Exec(t, client, "CREATE TABLE article (id INT PRIMARY KEY, topic VARCHAR(20), content TEXT)")
			// An account that sees this schema alone: other tests have tables of their own.
			testkit.Must(t, db.CreateUser(t.Context(), "finder_"+schema, "finder", "SELECT ON "+schema+".*"))
			seen, err := db.Open("finder_"+schema, "finder", schema)
			testkit.Must(t, err)
			defer seen.Close()
			found, more, err := table.Candidates(t.Context(), seen, 20)
			testkit.Must(t, err)
			var got []string
			for i, c := range found {
				got = append(got, c.Name)
				if i > 0 && c.Columns > found[i-1].Columns {
					t.Errorf("not the best first: %+v", found)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) || more {
				t.Errorf("found %v, %v; want %v", got, more, want)
			}
			if found, more, err := table.Candidates(t.Context(), seen, 3); err != nil || !more || len(found) > 3 {
				t.Errorf("with a limit: %v, %v, %v", found, more, err)
			}
		})
	}
}

// A table of no layout is mapped by names and types; what cannot be found is named.
func TestGuess(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			schema := db.CreateSchema(t)
			client := db.Connect(t, schema)
			testkit.Exec(t, client, `CREATE TABLE mq_send (seq BIGINT PRIMARY KEY, event_type VARCHAR(32) NOT NULL, order_no VARCHAR(32) NOT NULL, queue_name VARCHAR(64) NOT NULL,
				request MEDIUMTEXT NOT NULL, send_state TINYINT NOT NULL, retry_times INT NOT NULL, version INT NOT NULL, remark TEXT, add_time DATETIME NOT NULL, UNIQUE (event_type, order_no))`)
			m, err := table.Guess(t.Context(), client, schema, "mq_send")
			testkit.Must(t, err)
			m.Set(table.Body, "request") // two columns can hold long texts
			bound, findings, err := table.Load(t.Context(), client, m)
			testkit.Must(t, err)
			if bound == nil {
				t.Fatalf("%+v", findings)
			}
			overrides, err := m.Overrides()
			testkit.Must(t, err)
			want := map[string]string{
				"id": "seq", "biz_type": "event_type", "key": "order_no", "topic": "queue_name", "body": "request", "status": "send_state", "retry_count": "retry_times",
				"created_at": "add_time", "fail_reason": "", "headers": "", "last_exec_time": "", "max_retry": "", "next_retry_time": "", "sharding_key": "", "tag": "",
				"updated_at": "", "updated_by": "",
			}
			if fmt.Sprint(overrides) != fmt.Sprint(want) {
				t.Errorf("columns:\n%v\nwant\n%v", overrides, want)
			}
			testkit.Exec(t, client, "CREATE TABLE note (id INT PRIMARY KEY, text TEXT, remark TEXT)")
			m, err = table.Guess(t.Context(), client, schema, "note")
			testkit.Must(t, err)
			if _, findings, err = table.Load(t.Context(), client, m); err != nil || !server.HasFault(findings) || len(findings) != 3 {
				t.Errorf("status, topic and body are missing: %+v, %v", findings, err)
			}
		})
	}
}
