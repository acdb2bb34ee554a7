package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A server can give its sessions defaults that refuse a statement, end a result before its last row, or begin a transaction behind a COMMIT. The relay's
// sessions undo them.
func TestDefaultsThatChangeStatements(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		for _, setting := range []string{"sql_safe_updates = 1", "sql_select_limit = 20", "max_join_size = 1000", "sql_big_selects = 0", "completion_type = CHAIN"} {
			testkit.Exec(t, db.Root(), "SET GLOBAL "+setting)
		}
		l := newLab(t, db, rareSweeps, "retention: {sent: 1h}")
		const expired = 2000
		rows := make([]string, expired)
		for i := range rows {
			rows[i] = fmt.Sprintf("('old', '%d', 'orders', '', 2, NOW(3) - INTERVAL 3 HOUR, NOW(3) - INTERVAL 2 HOUR)", i)
		}
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, status, created_at, last_exec_time) VALUES " + strings.Join(rows, ", "))
		l.start()
		l.wait("the old rows to leave, in transactions", func() bool { return l.metric("retention_rows_total", `action="deleted"`) == expired })
		logged, hidden := keys("logged", 300), keys("hidden", 300)
		l.exec(insert(logged...))
		l.session("SET sql_log_bin = 0").exec(insert(hidden...)) // which only a sweep finds
		l.swept()
		l.account(slices.Concat(logged, hidden)...)
		l.wait("no row to wait for its status", func() bool { return l.metric("journal_entries") == 0 })
	})
}
