package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A server can give its sessions defaults that refuse a statement, cut its result off, or open a transaction behind a COMMIT. The relay's sessions do
// without them.
func TestDefaultsThatChangeStatements(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		for _, setting := range []string{"sql_safe_updates = 1", "sql_select_limit = 20", "max_join_size = 1000", "sql_big_selects = 0", "completion_type = CHAIN"} {
			testkit.Exec(t, db.Root(), "SET GLOBAL "+setting)
		}
		l := newLab(t, db, rareSweeps, "retention: {sent: 1h}")
		var old []string
		const expired = 2000
		for i := range expired {
			old = append(old, fmt.Sprintf("('old', '%d', 'orders', '', 2, NOW(3) - INTERVAL 3 HOUR, NOW(3) - INTERVAL 2 HOUR)", i))
		}
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, status, created_at, last_exec_time) VALUES " + strings.Join(old, ", "))
		l.start()
		l.wait("the old rows to leave, in transactions", func() bool { return l.metric("retention_rows_total", `action="deleted"`) == expired })
		locked, of := keys("locked", 30), map[string][]string{"the log": keys("log", 300), "a sweep": keys("hidden", 300)}
		l.exec(insert(locked...))
		l.sent()
		l.exec(insert(of["the log"]...))
		l.session("SET sql_log_bin = 0").exec(insert(of["a sweep"]...))
		holder := l.session("BEGIN", insert("last"))
		l.swept()
		holder.exec("COMMIT AND NO CHAIN")
		l.account(append(append(append(locked, "last"), of["the log"]...), of["a sweep"]...)...)
		if n := l.metric("journal_entries"); n != 0 {
			t.Errorf("%v rows wait for their statuses", n)
		}
	})
}
