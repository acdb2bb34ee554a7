package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A backlog is published though its table takes no statuses. A kill meanwhile repeats none of it, because the journal has what was sent, and in the end all
// statuses are written.
func TestABacklogIsPublishedAheadOfItsStatuses(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newStage(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}), fake(t), "fallback: {interval: 1h, threshold: 1h}")
		l.Start(t)
		const rows = 150_000
		holder, err := l.sql.Conn(t.Context())
		testkit.Must(t, err)
		defer holder.Close()
		exec := func(query string, args ...any) {
			t.Helper()
			_, err := holder.ExecContext(t.Context(), query, args...)
			testkit.Must(t, err)
		}
		exec("LOCK TABLES t_local_message WRITE")
		for at := 0; at < rows; at += 1000 {
			exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES " + strings.TrimSuffix(strings.Repeat("('left', UUID(), 'orders', 'body'),", 1000), ","))
		}
		l.wait("the backlog to be published and journalled", func() bool { return l.metrics()["journal_entries"] == rows })
		l.Kill()
		// The server does not see that a client has gone while its statement waits for the lock: that statement would be executed.
		l.wait("the statements of the killed relay to give up", func() bool {
			return l.number("SELECT COUNT(*) FROM "+l.db.Processlist()+" WHERE STATE LIKE '%metadata lock%'") == 0
		})
		exec("UNLOCK TABLES")
		if n := l.table.Count(t, "status = 2"); n != 0 {
			t.Fatalf("%d rows are SENT in a table that took no statuses", n)
		}
		l.Start(t)
		// The statuses are all that is committed on this server. MariaDB leaves them out of the log's stream, which must not look dead meanwhile.
		ends := map[string]bool{}
		l.wait("all statuses", func() bool {
			if st, err := l.Client().Status(t.Context()); err == nil {
				ends[st.Positions.Read.String()] = true
			}
			return l.table.Count(t, "status <> 2") == 0
		})
		if len(ends) < 4 {
			t.Errorf("while %d statuses were written the reader was at %d places", rows, len(ends))
		}
		l.wait("the journal to be empty", func() bool { return l.metrics()["journal_entries"] == 0 })
		copies := 0
		for _, n := range l.published(topics[0]) {
			copies += n - 1
		}
		if n := len(l.published(topics[0])); n != rows || copies != 0 {
			t.Errorf("%d messages of %d rows, and %d copies", n, rows, copies)
		}
		l.stopInTime()
	})
}

// D07: a table whose statuses wait keeps no other one from its statuses, though rows of both are left in the same records of the journal.
func TestD07_AFullTableKeepsNoOtherFromItsStatuses(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.table("other")
		l.more = "fallback: {interval: 1h, threshold: 1h}"
		l.start()
		holder := l.session("LOCK TABLES t_local_message WRITE")
		const parts, each = 40, 500
		for n := range parts {
			part := columns + values(keys(fmt.Sprint(n, "-"), each)...)
			holder.exec("INSERT INTO t_local_message " + part)
			l.exec("INSERT INTO other " + strings.ReplaceAll(part, "('order',", "('other',"))
		}
		l.wait("the statuses of the other table", func() bool { return l.number("SELECT COUNT(*) FROM other WHERE status <> 2") == 0 })
		l.wait("the locked table's rows to be published", func() bool { return l.metric("ack_pending") == parts*each })
		holder.exec("UNLOCK TABLES")
		l.sent()
		l.wait("the journal to be empty", func() bool { return l.metric("journal_entries") == 0 })
	})
}

// Where no rows are left, as with ordering: key, those whose statuses wait have places in memory. When there is none any more, status says why nothing is published.
func TestStatusSaysThatPublishingWaitsForStatuses(t *testing.T) {
	relay.Long(t)
	l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MySQL})) // where no other test decides on branches
	l.mapping, l.more = ", ordering: key", "fallback: {interval: 1h, threshold: 1h}"
	l.start()
	holder := l.session("LOCK TABLES t_local_message WRITE")
	for n := range 50 { // up to 10,000 may be in flight when 10,000 wait
		holder.exec("INSERT INTO t_local_message " + columns + values(keys(fmt.Sprint(n, "-"), 500)...))
	}
	says := func() bool {
		status, err := l.admin().Status(t.Context())
		testkit.Must(t, err)
		return slices.ContainsFunc(status.Problems, func(p string) bool {
			rows := 0 // those that may wait, and what was in flight when their number was reached
			_, err := fmt.Sscanf(p, "nothing is published until statuses are written: %d rows wait for theirs", &rows)
			return err == nil && rows >= 10_000
		})
	}
	l.wait("status to say that publishing waits", says)
	holder.exec("UNLOCK TABLES")
	l.sent()
	if says() {
		t.Error("status says that publishing waits after all statuses are written")
	}
}

// P8: rows whose statuses their table refuses stop no other row, however many they are.
func TestP8_ManyRefusedStatusesStopNoOtherRow(t *testing.T) {
	relay.Long(t)
	l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB})) // where no other test decides on branches
	l.mapping, l.more = ", ordering: key", "fallback: {interval: 1h, threshold: 1h}"         // so that no row is left in the journal
	l.exec("CREATE TRIGGER refuse BEFORE UPDATE ON t_local_message FOR EACH ROW IF OLD.biz_key LIKE 'bad%' AND NEW.status = 2 THEN " +
		"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF")
	l.start()
	const bad = 10_100 // more than the rows that may wait for their statuses
	for n := 0; n < bad; n += 100 {
		l.exec("INSERT INTO t_local_message " + columns + values(keys(fmt.Sprint("bad", n, "-"), 100)...))
	}
	l.wait("the statuses to be refused", func() bool { return l.metric("unwritable_rows") == bad })
	l.exec(insert("good"))
	l.wait("another row to be SENT", func() bool {
		return l.number("SELECT COUNT(*) FROM t_local_message WHERE biz_key = 'good' AND status = 2") == 1
	})
	l.exec("DROP TRIGGER refuse")
}

// P8: a table whose statuses cannot be written stops no other, though its rows fill the memory. Those that do not fit are left to the sweep.
func TestP8_AStuckTableStopsNoOther(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})) // where no other test decides on branches
		l.table("other")
		l.mapping, l.more = ", ordering: key", "fallback: {interval: 1s, threshold: 1s}" // no row is left in the journal
		l.exec("CREATE TABLE third (id INT PRIMARY KEY)")
		l.branch("third", "INSERT INTO third VALUES (1)")
		l.start()
		holder := l.session("LOCK TABLES t_local_message WRITE")
		for n := range 50 { // 25,000 rows: 10,000 may wait for their statuses while as many are in flight
			holder.exec("INSERT INTO t_local_message " + columns + values(keys(fmt.Sprint(n, "-"), 500)...))
		}
		l.wait("rows of the locked table to be left to the sweep", func() bool { return l.deferred("table") > 0 })
		l.finish("third", "COMMIT") // of rows of any table, as far as the log shows: both tables are read once more
		l.exec("INSERT INTO other " + columns + values("free"))
		l.session("SET sql_log_bin = 0").exec("INSERT INTO other " + columns + values("found by the sweep"))
		l.wait("rows of the other table to be SENT", func() bool { return l.number("SELECT COUNT(*) FROM other WHERE status = 2") == 2 })
		holder.exec("UNLOCK TABLES")
		l.sent()
	})
}

// A sweep that works off the backlog of one table publishes what another table's log did not deliver meanwhile.
func TestP8_ABacklogDelaysNoOtherTable(t *testing.T) {
	relay.Long(t)
	onBothAtOnce(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.table("other")
		l.more = "fallback: {rate: 100}"
		hidden := l.session("SET sql_log_bin = 0") // only sweeps find these rows
		for n := range 6 {
			hidden.exec("INSERT INTO t_local_message " + columns + values(keys(fmt.Sprint(n, "-"), 500)...)) // 30 s of a sweep
		}
		left := func() int { return l.number("SELECT COUNT(*) FROM t_local_message WHERE status = 0") }
		l.start()
		l.wait("several shares of the sweep", func() bool { return left() < 2700 }) // the other table was listed once
		hidden.exec("INSERT INTO other " + columns + values("comes meanwhile"))
		hidden.exec("UPDATE other SET created_at = created_at - INTERVAL 1 HOUR") // older than the threshold
		l.exec("INSERT INTO other " + columns + values("of the log"))
		l.wait("rows of the other table to be SENT", func() bool { return l.number("SELECT COUNT(*) FROM other WHERE status = 2") == 2 })
		if n := left(); n == 0 {
			t.Error("the row of the other table came after the backlog")
		} else {
			t.Logf("%d rows of the backlog were left", n)
		}
	})
}
