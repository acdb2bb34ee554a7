package e2e

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// D14: rows of some keys are refused again and again; their keys wait, over a restart too, while the others flow. When the broker takes them
// each key has its rows in the order of their commits.
func TestD14_OrderByKeyThroughARefusalAndARestart(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor), frequentSweeps, "retry: {max: 1000, schedule: [300ms]}")
		l.mapping = ", ordering: key"
		keys := []string{"a", "b", "c", "d", "e", "f"}
		var committed []string
		commit := func(round int) {
			for _, key := range keys {
				name := fmt.Sprintf("%s-%d", key, round)
				l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, sharding_key) VALUES ('order', ?, 'orders', ?, ?)", name, body(name), key)
				committed = append(committed, name)
			}
		}
		refusal := testkit.FaultKafka(t, l.kafka, testkit.KafkaFault{Key: kmsg.Produce, Topic: "orders", Partitions: []int32{0}, Err: kerr.UnknownServerError, Count: -1})
		l.start()
		commit(1)
		commit(2)
		waiting := 0
		settled := func(rounds int) func() bool {
			return func() bool { // every row that is not of a waiting key is sent; right after a start every key may wait shortly
				sent := l.number("SELECT COUNT(*) FROM t_local_message WHERE status = 2")
				waiting = int(l.metric("waiting_keys", ""))
				return waiting > 0 && waiting < len(keys) && sent == rounds*(len(keys)-waiting)
			}
		}
		l.wait("the keys of one partition to wait, and the others to flow", settled(2))
		l.wait("status to show the waiting keys", func() bool {
			status, err := l.admin().Status(t.Context())
			testkit.Must(t, err)
			w := status.WaitingKeys
			return settled(2)() && w.Keys == waiting && len(w.First) == waiting && strings.HasSuffix(w.First[0].MessageID, "-1") && (strings.HasPrefix(w.First[0].Reason, "refused: ") || w.First[0].Reason == "found by the sweep")
		})
		l.stop()
		commit(3)
		l.start()
		commit(4)
		l.wait("the other keys to flow after a restart", settled(4))
		refusal.Remove()
		l.account(committed...)
		l.wait("no key to wait", func() bool { return l.metric("waiting_keys", "") == 0 })
		l.inOrder(keys)
	})
}

// inOrder checks that the rows of each key, KEY-NUMBER, lie in their partition in the order of their numbers.
func (l *lab) inOrder(keys []string) {
	l.t.Helper()
	records := l.records()
	for _, key := range keys {
		var names []string
		for name := range records {
			if strings.HasPrefix(name, key+"-") {
				names = append(names, name)
			}
		}
		slices.SortFunc(names, func(a, b string) int { return int(records[a][0].Offset - records[b][0].Offset) })
		if !slices.IsSorted(names) {
			l.t.Errorf("rows of the key %s come as %v", key, names)
		}
	}
}

// notRead runs a statement whose text the reader does not understand.
func notRead(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	testkit.Must(t, err)
	defer conn.Close()
	for _, statement := range []string{"SET NAMES sjis", query, "SET NAMES utf8mb4"} {
		_, err := conn.ExecContext(t.Context(), statement)
		testkit.Must(t, err)
	}
}

// G06: the reader cannot name the columns of the rows behind each ALTER (a comment in sjis, which is not read, and a log without names), or
// cannot read the body of every second row (JSON with a time), and defers them. The rows of the key keep their order.
func TestG06_DeferredRowsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MySQL, Args: []string{"--binlog-row-metadata=MINIMAL"}})
	l := newLab(t, db, frequentSweeps)
	l.mapping = ", ordering: key"
	l.exec("ALTER TABLE t_local_message MODIFY message_body JSON NOT NULL")
	l.start()
	const alters, rows = 4, 40
	for n := range alters * rows {
		if n%rows == rows-1 {
			notRead(t, l.sql, fmt.Sprintf("ALTER TABLE t_local_message ADD COLUMN added_%d INT NULL COMMENT '\x83\x5c' FIRST", n))
		}
		name, text := fmt.Sprintf("a-%04d", n), "JSON_OBJECT('n', ?)"
		if n >= alters*rows/2 && n%2 == 0 { // the log holds a time that the reader does not print
			text = "JSON_OBJECT('n', ?, 'at', CAST('10:11:12' AS TIME))"
		}
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, sharding_key) VALUES ('order', ?, 'orders', "+text+", 'a')", name, n)
	}
	l.sent()
	if l.metric("deferred_total", `cause="unmapped"`) == 0 {
		t.Error("no row was deferred: nothing was shown")
	}
	if n := len(l.records()); n != alters*rows {
		t.Errorf("%d rows were published of %d", n, alters*rows)
	}
	l.inOrder([]string{"a"})
}
