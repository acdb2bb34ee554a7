package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// everyLayout is a stage whose relay serves one table of each layout, as its owners have it, with the preset and at most its words.
type everyLayout struct {
	*stage
	all []*layouts.Layout
}

func newEveryLayout(t *testing.T, db *testkit.Database, b relay.Broker, all ...*layouts.Layout) *everyLayout {
	t.Helper()
	return newLayouts(t, db, b, "retry: {max: 5, schedule: [1h]}", all...)
}

// newLayouts is newEveryLayout with other sections of the configuration.
func newLayouts(t *testing.T, db *testkit.Database, b relay.Broker, extra string, all ...*layouts.Layout) *everyLayout {
	t.Helper()
	l := &everyLayout{newStage(t, db, b, extra), all}
	l.create()
	return l
}

// create makes the tables and writes them into the configuration.
func (l *everyLayout) create() {
	l.t.Helper()
	l.exec("DROP TABLE t_local_message")
	var tables []string
	for _, layout := range l.all {
		l.exec(layout.Create())
		tables = append(tables, fmt.Sprintf("  - {name: %s.%s, %s}\n", l.schema(), layout.Table, layout.Config))
	}
	l.Edit(l.t, fmt.Sprintf("  - {name: %q, preset: %q}\n", l.table.FullName(), l.table.Preset), strings.Join(tables, ""))
}

// insert writes row n of every layout; the statement before and after are of the session.
func (l *everyLayout) insert(n int, topic string, hidden bool) {
	l.t.Helper()
	conn, err := l.sql.Conn(l.t.Context())
	testkit.Must(l.t, err)
	defer conn.Close()
	set := func(on int) {
		_, err := conn.ExecContext(l.t.Context(), fmt.Sprintf("SET SESSION sql_log_bin = %d", on))
		testkit.Must(l.t, err)
	}
	if hidden {
		set(0)
		defer set(1)
	}
	for _, layout := range l.all {
		query, args := layout.Insert(n, topic, fmt.Sprint("body ", n))
		_, err := conn.ExecContext(l.t.Context(), query, args...)
		testkit.Must(l.t, err)
	}
}

// shows waits until a condition holds for row n of a layout.
func (l *everyLayout) shows(layout *layouts.Layout, n int, condition string) {
	l.t.Helper()
	query := "SELECT COALESCE(" + condition + ", FALSE) FROM `" + layout.Table + "` WHERE " + layout.Where(n)
	l.wait(fmt.Sprintf("layout %s, row %d: %s", layout.Name, n, condition), func() (holds bool) {
		testkit.Must(l.t, l.sql.QueryRowContext(l.t.Context(), query).Scan(&holds))
		return holds
	})
}

func (l *everyLayout) is(layout *layouts.Layout, n int, status, condition string) {
	l.t.Helper()
	l.shows(layout, n, fmt.Sprintf("%s = '%s' AND %s", layout.Status, layout.Codes[status], condition))
}

// swept returns when two sweeps over rows of any age have begun and ended.
func (l *everyLayout) swept() {
	l.t.Helper()
	runs := func() float64 { return l.metrics()["sweep_runs_total"] }
	before := runs()
	testkit.Must(l.t, l.Client().Sweep(l.t.Context())) // it is made once more a second later
	l.wait("two sweeps", func() bool { return runs() > before+1 })
}

// Every layout, unaltered: rows of the log, rows that the log does not show, rows in states of the consumers, refused rows and
// rows that can never be sent. A row that waits continues to wait after a kill.
func TestEveryLayout(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		cluster := fake(t)
		l := newEveryLayout(t, testkit.SharedDatabase(t, flavor), cluster, append(layouts.All(), layouts.Binary())...)
		fault := cluster.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topics[1], Err: kerr.UnknownServerError, Count: -1})
		l.Start(t)

		l.insert(1, topics[0], false)
		for _, layout := range l.all {
			l.is(layout, 1, "sent", layout.Written)
		}
		if paths := l.metricBy("messages_total", "path"); paths["binlog"] != float64(len(l.all)) || paths["sweep"] != 0 {
			t.Errorf("rows of the log went by %v", paths)
		}
		l.insert(2, topics[0], true)
		for _, layout := range l.all {
			l.is(layout, 2, "sent", layout.Written)
		}
		l.consumed(3)
		l.insert(4, topics[1], false)
		l.insert(5, "no topic ü", false)
		l.refused(fault)

		hits := fault.Hits()
		l.Kill()
		l.Start(t)
		l.swept()
		l.refused(fault)
		if n := fault.Hits() - hits; n > 0 {
			t.Errorf("%d rows that wait were tried again after the restart", n)
		}
		l.consumersRows(3)

		fault.Remove()
		published := map[string]int{}
		for _, layout := range l.all {
			for n := 1; n <= 3; n++ {
				published[message(layout, n, topics[0])]++
			}
			if layout.Due != "" {
				l.exec("UPDATE `" + layout.Table + "` SET " + layout.Due + " = NULL WHERE " + layout.Where(4))
				l.is(layout, 4, "sent", layout.Written)
				published[message(layout, 4, topics[1])]++
			}
		}
		l.once(published)
		l.doctor()
		l.killed(100)
		l.outages(200, cluster)
		l.stopInTime()
		l.lost(300)
		l.stopInTime()
	})
}

// consumed writes rows in the states of the consumers, which the log does not show.
func (l *everyLayout) consumed(from int) {
	l.t.Helper()
	l.insert(from, topics[0], true) // the sweep takes these of the layouts without such states, and may take all
	for _, layout := range l.all {
		l.is(layout, from, "sent", "TRUE")
		if word := layout.Codes["consumed"]; word != "" {
			l.exec("UPDATE `"+layout.Table+"` SET "+layout.Status+" = ? WHERE "+layout.Where(from), word)
		}
	}
}

// consumersRows shows that they are as the consumers left them, and counted by their names.
func (l *everyLayout) consumersRows(n int) {
	l.t.Helper()
	l.wait("the rows of the consumers to be counted", func() bool {
		s, err := l.Status()
		if err != nil || len(s.Tables) != len(l.all) {
			return false
		}
		for i, layout := range l.all {
			if layout.Codes["consumed"] != "" && s.Tables[i].Rows["consumed"] != 1 {
				return false
			}
		}
		return true
	})
	for _, layout := range l.all {
		if layout.Codes["consumed"] != "" {
			l.is(layout, n, "consumed", "TRUE")
		}
	}
}

// refused waits until row 4 waits for its second attempt and row 5 has none, or the longest wait where no row can fail.
func (l *everyLayout) refused(fault interface{ Hits() int }) {
	l.t.Helper()
	for _, layout := range l.all {
		once := "TRUE"
		if layout.Has("attempts") {
			once = "retry_count = 1"
		}
		l.is(layout, 4, "pending", once)
		if layout.Has("failed") {
			l.is(layout, 5, "failed", "TRUE")
		} else {
			l.is(layout, 5, "pending", once)
		}
	}
	l.wait("refusals", func() bool { return fault.Hits() >= 1 })
	l.wait("every outcome to be written", func() bool { m := l.metrics(); return m["ack_pending"] == 0 && m["in_flight_messages"] == 0 })
}

// once shows that the broker has each of the rows once, and nothing else.
func (l *everyLayout) once(rows map[string]int) {
	l.t.Helper()
	got := map[string]int{}
	for _, r := range relay.ReadAll(l.t, l.broker, topics...) {
		got[r.Topic+" "+r.MessageID+" "+string(r.Body)]++
	}
	if !maps.Equal(got, rows) {
		l.t.Errorf("the broker has %v, want %v", got, rows)
	}
}

// message is what the broker has of row n; layouts that make the same message id have one each.
func message(layout *layouts.Layout, n int, topic string) string {
	return topic + " " + layout.MessageID(n) + fmt.Sprint(" body ", n)
}

// doctor says what was found and what each lack costs.
func (l *everyLayout) doctor() {
	l.t.Helper()
	out, _, _ := l.Command(l.t, "doctor")
	for _, words := range []string{
		"last_execute_time  found as the last_exec_time", "no code for FAILED", "no column for the due time", "no column for the reason",
		"only one relay may work on the table",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(words), " ")) {
			l.t.Errorf("doctor does not say %q:\n%s", words, out)
		}
	}
}

// The layouts without an integer key and with a second name for the message id, on RocketMQ.
func layoutsOnRocketMQ(t *testing.T, broker *testkit.RocketMQ) {
	var all []*layouts.Layout
	for _, layout := range layouts.All() {
		if layout.Name == "D" || layout.Name == "E" {
			all = append(all, layout)
		}
	}
	l := newEveryLayout(t, testkit.SharedMySQL(t), relay.RocketMQ{RocketMQ: broker}, all...)
	l.Start(t)
	for n := 101; n <= 102; n++ { // the second is hidden from the log
		l.insert(n, topics[1], n == 102)
		for _, layout := range all {
			l.is(layout, n, "sent", layout.Written)
		}
	}
	l.wait("the broker to show the messages", func() bool {
		stored, err := testkit.ReadRocketMQTopic(t.Context(), broker.NameServer(), topics[1])
		testkit.Must(t, err)
		found := 0
		for _, m := range stored {
			for _, layout := range all {
				for n := 101; n <= 102; n++ {
					if m.ID() == layout.MessageID(n) && (m.Properties["messageId"] == m.ID()) == (layout.Name == "E") {
						found++
					}
				}
			}
		}
		return found == 2*len(all)
	})
	l.stopInTime()
}
