package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// TRUNCATE takes a backlog of PENDING rows away while the broker is gone, and new rows get their ids (D23). When the broker
// is back, each new row is published once, under its own message id and with its own content. Of the old rows those may be
// published that the log had shown, once and as they were committed; those that only the table had are gone. A relay that
// was killed meanwhile looks rows up in the table when it reads the log again, and publishes none of the old ones.
func TestD23_TruncateOfABacklog(t *testing.T) {
	t.Parallel()
	const rows = 500
	for _, flavor := range testkit.Flavors() {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/killed=%v", flavor, killed), func(t *testing.T) {
				cluster := fake(t)
				l := newStage(t, testkit.SharedDatabase(t, flavor), cluster, "pipeline: {max_in_flight: 100}")
				l.Start(t)
				l.row("before", topics[0], "body of before")
				l.waitCount(1, "status = 2")
				l.exec("TRUNCATE t_local_message")
				cluster.Stop()
				for i := range rows { // the first hundred are in the relay's hands, the others before the reader
					l.backlog("old", i)
				}
				l.wait("the breaker to open", func() bool { return l.breaker() == "open" })
				l.unlogged("missed", rows)
				if n := l.table.Count(t, "status = 0"); n != 2*rows {
					t.Fatalf("a backlog of %d rows", n)
				}
				if killed {
					l.Kill()
				}
				l.exec("TRUNCATE t_local_message")
				for i := range rows {
					l.backlog("new", i)
				}
				if n := l.table.Count(t, "id BETWEEN 1 AND 500 AND biz_type = 'new'"); n != rows {
					t.Fatalf("%d of %d ids were used again", n, rows)
				}
				testkit.Must(t, cluster.Start())
				if killed {
					l.Start(t)
				}
				l.row("after", topics[0], "body of after")
				l.waitCount(rows+1, "status = 2 AND retry_count = 0")
				counts := l.byKind()
				t.Logf("published %v", counts)
				if counts["new"] != rows || counts["order"] != 2 || counts["missed"] != 0 || counts["old"] > rows || killed && counts["old"] > 0 {
					t.Errorf("published %v, want %d new rows", counts, rows)
				}
				if n := l.metrics()["internal_errors_total"]; n != 0 {
					t.Errorf("%v internal errors", n)
				}
				l.stopInTime()
			})
		}
	}
}

// backlog commits one row in a transaction of its own.
func (l *stage) backlog(kind string, i int) {
	l.t.Helper()
	key := fmt.Sprint(kind, i)
	testkit.Must(l.t, l.table.Insert(l.t.Context(), l.sql, relay.Row{BizType: kind, Key: key, Topic: topics[0], Body: []byte("body of " + key)}))
}

// unlogged commits rows that the log does not show.
func (l *stage) unlogged(kind string, n int) {
	l.t.Helper()
	pool := l.db.Connect(l.t, l.table.Schema)
	pool.SetMaxOpenConns(1)
	testkit.Exec(l.t, pool, "SET SESSION sql_log_bin = 0")
	rows := make([]relay.Row, n)
	for i := range rows {
		key := fmt.Sprint(kind, i)
		rows[i] = relay.Row{BizType: kind, Key: key, Topic: topics[0], Body: []byte("body of " + key)}
	}
	testkit.Must(l.t, l.table.Insert(l.t.Context(), pool, rows...))
}

// byKind counts the messages of each kind, and fails the test for one that came twice or with anything but its own content.
func (l *stage) byKind() map[string]int {
	l.t.Helper()
	counts, seen := map[string]int{}, map[string]bool{}
	for _, r := range relay.ReadAll(l.t, l.broker, topics[0]) {
		kind, key, _ := strings.Cut(r.MessageID, ":")
		if kind != r.BizType || key != r.Key || string(r.Body) != "body of "+key || seen[r.MessageID] {
			l.t.Errorf("%s, seen before: %v, came as %s %s %q", r.MessageID, seen[r.MessageID], r.BizType, r.Key, r.Body)
		}
		seen[r.MessageID] = true
		counts[kind]++
	}
	return counts
}
