package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// An application that publishes itself has its time: the relay leaves a row alone that is marked within it, whatever sweeps come, and
// publishes one that is not, once and no earlier; over a kill too, and where the log does not show the row.
func TestGrace(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), frequentSweeps)
		text, err := os.ReadFile(l.Config())
		testkit.Must(t, err)
		config := strings.Replace(string(text), `preset: "t_local_message"}`, `preset: "t_local_message", grace: 2s}`, 1)
		testkit.Must(t, os.WriteFile(l.Config(), []byte(config), 0o600))
		mark := func(keys string) {
			l.exec("UPDATE t_local_message SET status = 2, updated_by = 'application' WHERE biz_key IN (" + keys + ")")
		}

		l.Start(t)
		l.row("marked", topics[0], "body")
		l.row("abandoned", topics[0], "body")
		hidden, err := l.sql.Conn(t.Context())
		testkit.Must(t, err)
		for _, statement := range []string{
			"SET SESSION sql_log_bin = 0",
			"INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'hidden', '" + topics[0] + "', 'body')",
			"SET SESSION sql_log_bin = 1",
		} {
			_, err := hidden.ExecContext(t.Context(), statement)
			testkit.Must(t, err)
		}
		testkit.Must(t, hidden.Close())
		testkit.Must(t, l.Client().Sweep(t.Context()))
		mark("'marked'")
		l.waitCount(0, "status <> 2")

		l.row("marked late", topics[0], "body")
		l.row("over a kill", topics[0], "body")
		l.Kill()
		mark("'marked late'")
		l.Start(t)
		l.waitCount(0, "status <> 2")
		l.stopInTime()

		var keys []string
		for _, r := range relay.ReadAll(t, l.broker, topics...) {
			keys = append(keys, r.Key)
		}
		slices.Sort(keys)
		if want := []string{"abandoned", "hidden", "over a kill"}; !slices.Equal(keys, want) {
			t.Errorf("published %v, want %v", keys, want)
		}
		if n := l.table.Count(t, "updated_by = 'canal-outbox' AND TIMESTAMPDIFF(MICROSECOND, created_at, last_exec_time) < 2000000"); n > 0 {
			t.Errorf("%d rows were published before their time", n)
		}
	})
}
