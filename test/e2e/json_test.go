package e2e

import (
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A50: updates of a JSON column that the log holds as differences (binlog_row_value_options=PARTIAL_JSON) stand between the
// inserts, in transactions of their own, in one with an insert, and inside compressed transactions. They are skipped;
// the inserts, whose JSON is whole, come through the log.
func TestA50_PartialJSON(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedDatabase(t, testkit.Needs(t, testkit.MySQL, "8.0", "partial updates of JSON in its log")))
	l.exec("ALTER TABLE t_local_message ADD COLUMN detail JSON NULL AFTER id")
	l.start()
	l.settled("settled")
	from := l.position()
	want := []string{"settled"}
	detailed := func(key string) string {
		return fmt.Sprintf("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, detail) VALUES ('order', '%s', 'orders', '%s', "+
			"JSON_OBJECT('state', 'first', 'n', 1, 'ballast', REPEAT('x', 5000)))", key, body(key))
	}
	for name, setting := range map[string]string{
		"full": "binlog_row_image = 'FULL'", "minimal": "binlog_row_image = 'MINIMAL'", "compressed": "binlog_transaction_compression = ON",
	} {
		s := l.session("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'", "SET SESSION "+setting)
		for i := range 20 {
			key := fmt.Sprint(name, i)
			where := " WHERE biz_key = '" + key + "'"
			s.exec(detailed(key),
				"UPDATE t_local_message SET detail = JSON_SET(detail, '$.state', 'second', '$.n', 2)"+where,
				"UPDATE t_local_message SET detail = JSON_REMOVE(detail, '$.n'), updated_by = 'application'"+where)
			want = append(want, key)
		}
	}
	l.sent()
	l.compare(want...)
	if n := l.fromSweep(); n != 0 {
		t.Errorf("%d rows came from the sweep", n)
	}
	if n := l.events(from.File, uint64(from.Offset), "Update_rows_partial"); n == 0 {
		t.Error("the log holds no partial update: nothing was shown")
	}
	s := l.session("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
	s.exec("BEGIN", detailed("together"), "UPDATE t_local_message SET detail = JSON_SET(detail, '$.n', 3) WHERE biz_key = 'together'", "COMMIT")
	l.account(append(want, "together")...)
	l.wantDeferred("rewritten", 1)
	l.wantGaps()
}

// events counts the events of a kind in a log file behind a position.
func (l *lab) events(file string, from uint64, kind string) (n int) {
	l.t.Helper()
	rows, err := l.db.Root().Query(fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' FROM %d", file, from))
	testkit.Must(l.t, err)
	defer rows.Close()
	for rows.Next() {
		var name, info, have string
		var position, serverID, end uint64
		testkit.Must(l.t, rows.Scan(&name, &position, &have, &serverID, &end, &info))
		if have == kind {
			n++
		}
	}
	testkit.Must(l.t, rows.Err())
	return n
}
