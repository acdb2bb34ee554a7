package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// logOnly is a stage whose relay serves the two forms of Debezium's outbox.
type logOnly struct {
	*everyLayout
	topics []string
	rows   int // of both tables; they are committed and can be published
}

func newLogOnly(t *testing.T, flavor testkit.Flavor) (*logOnly, *fakekafka.Cluster) {
	t.Helper()
	return newLogOnlyOn(t, testkit.SharedDatabase(t, flavor))
}

func newLogOnlyOn(t *testing.T, db *testkit.Database) (*logOnly, *fakekafka.Cluster) {
	t.Helper()
	l := &logOnly{topics: []string{"outbox.event.orders", "outbox.event.payments"}}
	cluster := fakekafka.New(t, 1, map[string]int{l.topics[0]: 4, l.topics[1]: 4})
	l.everyLayout = newEveryLayout(t, db, cluster, layouts.LogOnly()...)
	return l, cluster
}

// event commits rows n of both tables, in one transaction with more statements; %s is the name of a table, and %[2]s finds the row.
func (l *logOnly) event(n int, aggregate string, more ...string) {
	l.t.Helper()
	tx, err := l.sql.BeginTx(l.t.Context(), nil)
	testkit.Must(l.t, err)
	for _, layout := range l.all {
		query, args := layout.Insert(n, aggregate, payload(n))
		_, err := tx.ExecContext(l.t.Context(), query, args...)
		testkit.Must(l.t, err)
		for _, statement := range more {
			_, err := tx.ExecContext(l.t.Context(), fmt.Sprintf(statement, layout.Table, layout.Where(n)))
			testkit.Must(l.t, err)
		}
	}
	testkit.Must(l.t, tx.Commit())
	l.rows += len(l.all)
}

const deletes = "DELETE FROM %s WHERE %s"

func payload(n int) string { return fmt.Sprintf(`"body %d"`, n) }

// has waits until the broker has rows from to to of an aggregate and returns how many copies there are of each row.
func (l *logOnly) has(aggregate string, from, to int) map[string]int {
	l.t.Helper()
	copies := map[string]int{}
	l.wait(fmt.Sprintf("rows %d to %d of %s", from, to, aggregate), func() bool {
		clear(copies)
		for _, r := range relay.ReadAll(l.t, l.broker, "outbox.event."+aggregate) {
			copies[r.MessageID]++
			if r.Headers["id"] != r.MessageID || r.Headers["eventType"] != "Created" || r.BizType != "Created" || !strings.HasPrefix(r.Key, "k-") {
				l.t.Fatalf("record %+v", r)
			}
		}
		for n := from; n <= to; n++ {
			for _, layout := range l.all {
				if copies[layout.MessageID(n)] == 0 {
					return false
				}
			}
		}
		return true
	})
	return copies
}

// kept is what the failed-message logs hold.
func (l *logOnly) kept() (list []checkpoint.FailedMessage) {
	l.t.Helper()
	for _, layout := range l.all {
		text, err := os.ReadFile(filepath.Join(l.StateDir(), "failed", l.schema()+"."+layout.Table+".jsonl"))
		if os.IsNotExist(err) {
			continue
		}
		testkit.Must(l.t, err)
		for line := range strings.Lines(string(text)) {
			var m checkpoint.FailedMessage
			testkit.Must(l.t, json.Unmarshal([]byte(line), &m))
			list = append(list, m)
		}
	}
	return list
}

// problem waits for a problem of the status that contains all of some words.
func (l *logOnly) problem(words ...string) (found string) {
	l.t.Helper()
	l.wait(fmt.Sprintf("a problem with %q", words), func() bool {
		s, err := l.Status()
		if err != nil {
			return false
		}
		i := slices.IndexFunc(s.Problems, func(p string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(p, word) })
		})
		if i >= 0 {
			found = s.Problems[i]
		}
		return i >= 0
	})
	return found
}

func once(copies map[string]int) bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(copies)), func(n int) bool { return n != 1 })
}

// Rows that are deleted in the transaction that wrote them are published. A row that can never be published goes to the
// failed-message log, and the relay continues with the log. A missing topic holds only its own rows. Nothing is written to the
// tables. A stop makes no copy.
func TestLogOnlyLayout(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		l, cluster := newLogOnly(t, flavor)
		l.refusesOrder()
		l.event(0, "orders") // before the first start: not the relay's
		l.Start(t)
		for n := 1; n <= 5; n++ {
			l.event(n, "orders", deletes)
		}
		l.event(6, "orders", "UPDATE %s SET type = 'Changed' WHERE %s", deletes)
		l.event(7, "no topic ü", deletes)
		l.event(8, "", deletes)
		l.event(9, "orders")
		if copies := l.has("orders", 1, 6); !once(copies) || copies[l.all[0].MessageID(0)] > 0 {
			t.Errorf("copies %v", copies)
		}
		l.has("orders", 9, 9)
		l.wait("the failed-message logs", func() bool { return len(l.kept()) == 4 })
		for _, m := range l.kept() {
			if m.Body == nil || !strings.HasPrefix(*m.Body, `"body `) || m.Reason == "" || m.Class != "permanent" {
				t.Errorf("kept %+v", m)
			}
		}
		l.wait("the metric of failed rows", func() bool { return l.metrics()["failed_total"] == 4 })

		l.event(10, "later", deletes)
		l.event(11, "payments", deletes)
		l.has("payments", 11, 11)
		l.problem("2 message(s) of tables without a status wait", "the checkpoint waits for them")
		l.stopInTime()
		l.Start(t)
		testkit.Must(t, cluster.CreateTopic("outbox.event.later", 1))
		if copies := l.has("later", 10, 10); !once(copies) {
			t.Errorf("copies %v", copies)
		}
		if copies := l.has("orders", 1, 6); !once(copies) {
			t.Errorf("after a clean stop: copies %v", copies)
		}
		out, _, _ := l.Command(t, "doctor")
		if words := "no status: rows are published from the binlog alone"; !strings.Contains(strings.Join(strings.Fields(out), " "), words) {
			t.Errorf("doctor does not say %q:\n%s", words, out)
		}
		l.stopInTime()
	})
}

// refusesOrder starts the relay with an order that such a table cannot have; it ends at once and says why and what to set.
func (l *logOnly) refusesOrder() {
	l.t.Helper()
	l.Edit(l.t, "preset: debezium-outbox", "preset: debezium-outbox, ordering: key")
	out, errOut, code := l.Command(l.t, "run")
	text := out + errOut
	for _, layout := range l.all {
		if code == 0 || !strings.Contains(text, l.schema()+"."+layout.Table) {
			l.t.Errorf("exit %d, the table %s is not named: %s", code, layout.Table, text)
		}
	}
	if !strings.Contains(text, "ordering: key is set, but the table has no status") || !strings.Contains(text, "Set tables[].ordering to none") {
		l.t.Errorf("exit %d: %s", code, text)
	}
	l.Edit(l.t, ", ordering: key", "")
}

// A kill repeats at most what was in flight: what the journal has is skipped, though a held row keeps the checkpoint before all of it. A
// transaction larger than memory comes in pieces, and is repeated no more than others.
func TestLogOnlyKill(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		l, cluster := newLogOnly(t, flavor)
		l.Edit(t, "sink:", "pipeline: {max_transaction_bytes: 1MiB}\nsink:")
		l.Start(t)
		l.event(1, "later", deletes) // holds the checkpoint
		for n := 2; n <= 21; n++ {
			l.event(n, "orders", deletes)
		}
		const large = 3000
		tx, err := l.sql.BeginTx(t.Context(), nil)
		testkit.Must(t, err)
		for n := range large {
			query, args := l.all[0].Insert(1000+n, "payments", `"`+strings.Repeat("x", 500)+`"`)
			_, err := tx.ExecContext(t.Context(), query, args...)
			testkit.Must(t, err)
		}
		testkit.Must(t, tx.Commit())
		l.has("orders", 2, 21)
		l.wait("the large transaction", func() bool { return len(relay.ReadAll(t, l.broker, "outbox.event.payments")) >= large })
		l.wait("the journal", func() bool { return l.metrics()["journal_entries"] == large+40 })
		l.Kill()
		for n := 22; n <= 31; n++ {
			l.event(n, "orders", deletes)
		}
		l.Start(t)
		if copies := l.has("orders", 2, 31); !once(copies) {
			t.Errorf("copies %v", copies)
		}
		if n := len(relay.ReadAll(t, l.broker, "outbox.event.payments")); n != large {
			t.Errorf("%d records of a transaction of %d rows", n, large)
		}
		testkit.Must(t, cluster.CreateTopic("outbox.event.later", 1))
		l.has("later", 1, 1)
		l.wait("an empty journal", func() bool { return l.metrics()["journal_entries"] == 0 })
		for n := 100; n < 140; n++ {
			if n == 120 {
				l.Kill()
			}
			l.event(n, "orders", deletes)
		}
		l.Start(t)
		copies := 0
		for _, n := range l.has("orders", 100, 139) {
			copies += n - 1
		}
		if copies > 40 {
			t.Errorf("%d copies of 40 rows before a kill", copies)
		}
		t.Logf("%d copies of 40 rows before a kill", copies)
		l.stopInTime()
	})
}

// A row in an XA transaction holds the reader. The problem says so, and how to continue. The sweep continues to publish the rows
// of tables with a status.
func TestLogOnlyHeldReader(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		l, _ := newLogOnly(t, flavor)
		l.Start(t)
		conn, err := l.sql.Conn(t.Context())
		testkit.Must(t, err)
		defer conn.Close()
		query, args := l.all[0].Insert(1, "orders", payload(1))
		for _, statement := range []string{"XA START 'log-only'", query, "XA END 'log-only'", "XA PREPARE 'log-only'", "XA COMMIT 'log-only'"} {
			if statement != query {
				args = nil
			}
			_, err := conn.ExecContext(t.Context(), statement, args...)
			testkit.Must(t, err)
			_, args = l.all[0].Insert(1, "orders", payload(1))
		}
		l.event(2, "orders", deletes)
		text := l.problem("the reader is stopped, and publishing of every table with it", "XA transaction")
		_, command, found := strings.Cut(text, "canal-outbox checkpoint ")
		if !found {
			t.Fatal(text)
		}
		command, _, _ = strings.Cut(command, ";") // where to read about it follows
		out, errOut, code := l.Command(t, append([]string{"checkpoint"}, strings.Fields(command+" --yes")...)...)
		if code != 0 || !strings.Contains(out+errOut, "has no status and is not swept") {
			t.Errorf("exit %d: %s%s", code, out, errOut)
		}
		l.has("orders", 2, 2)
		if gaps, err := l.Client().Gaps(t.Context()); err != nil || len(gaps) != 2 {
			t.Errorf("gaps %+v: %v", gaps, err)
		}
		if !strings.Contains(l.Log(t), "rows of tables without a status that lie in the gap are lost") {
			t.Error("the log does not say what the gap means")
		}
		l.stopInTime()
	})
}

// On RocketMQ, whose topics have no dots: the topic of the preset is refused at the start, any other is taken.
func logOnlyOnRocketMQ(t *testing.T, broker *testkit.RocketMQ) {
	all := layouts.LogOnly()
	l := newEveryLayout(t, testkit.SharedMySQL(t), relay.RocketMQ{RocketMQ: broker}, all...)
	if out, errOut, code := l.Command(t, "run"); code == 0 || !strings.Contains(out+errOut, "its topics are such as outbox.event.name") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	l.Edit(t, "preset: debezium-outbox", `preset: debezium-outbox, topic: "{aggregatetype}"`)
	l.Start(t)
	one := &logOnly{everyLayout: l}
	one.event(201, topics[1], deletes)
	l.wait("the broker to show the messages", func() bool {
		stored, err := testkit.ReadRocketMQTopic(t.Context(), broker.NameServer(), topics[1])
		testkit.Must(t, err)
		found := 0
		for _, m := range stored {
			for _, layout := range all {
				if m.ID() == layout.MessageID(201) && m.Properties["id"] == m.ID() && m.Properties["eventType"] == "Created" && string(m.Body) == payload(201) {
					found++
				}
			}
		}
		return found == len(all)
	})
	l.stopInTime()
}
