package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// An application that publishes itself has its time: the relay leaves a row alone that is marked within it, whatever sweeps come, and
// publishes one that is not, once and no earlier; over a kill too, and where the log does not show the row.
func TestGrace(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), frequentSweeps)
		l.Edit(t, `preset: "t_local_message"}`, `preset: "t_local_message", grace: 2s}`)
		want := []string{"abandoned", "hidden", "over a kill"}
		// An application that has its row marked in time. On a machine that is busy it may be too late, and writes another one.
		marked := func(name string, between func()) {
			for n := 0; ; n++ {
				key := fmt.Sprint(name, n)
				l.row(key, topics[0], "body")
				between()
				result, err := l.sql.ExecContext(t.Context(), "UPDATE t_local_message SET status = 2, updated_by = 'application' WHERE biz_key = ? AND status = 0", key)
				testkit.Must(t, err)
				changed, err := result.RowsAffected()
				testkit.Must(t, err)
				if changed == 1 {
					return
				}
				want = append(want, key)
			}
		}

		l.Start(t)
		l.row("abandoned", topics[0], "body")
		l.inSession("SET SESSION sql_log_bin = 0",
			"INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'hidden', '"+topics[0]+"', 'body')")
		marked("marked", func() { testkit.Must(t, l.Client().Sweep(t.Context())) })
		l.waitCount(0, "status <> 2")

		l.row("over a kill", topics[0], "body")
		marked("marked beside a kill", l.Kill)
		l.Start(t)
		l.waitCount(0, "status <> 2")
		l.stopInTime()

		var keys []string
		for _, r := range relay.ReadAll(t, l.broker, topics...) {
			keys = append(keys, r.Key)
		}
		slices.Sort(keys)
		slices.Sort(want)
		if !slices.Equal(keys, want) {
			t.Errorf("published %v, want %v", keys, want)
		}
		if n := l.table.Count(t, "updated_by = 'canal-outbox' AND TIMESTAMPDIFF(MICROSECOND, created_at, last_exec_time) < 2000000"); n > 0 {
			t.Errorf("%d rows were published before their time", n)
		}
	})
}
