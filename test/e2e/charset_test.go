package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// inCharset is a stage whose relay serves every layout in a database of a character set.
type inCharset struct {
	*logOnly // the layouts without a status
	status   []*layouts.Layout
	set      layouts.Charset
}

func newInCharset(t *testing.T, flavor testkit.Flavor, set layouts.Charset) *inCharset {
	t.Helper()
	l := &inCharset{logOnly: &logOnly{topics: []string{topics[0], layouts.EventTopic + topics[0]}}, set: set}
	cluster := fakekafka.New(t, 1, map[string]int{l.topics[0]: 4, l.topics[1]: 4})
	l.everyLayout = &everyLayout{stage: newStage(t, testkit.SharedDatabase(t, flavor), cluster, "retry: {max: 5, schedule: [1h]}")}
	for _, layout := range append(layouts.All(), layouts.LogOnly()...) {
		layout = layout.In(set)
		l.all = append(l.all, layout)
		if !layout.LogOnly() {
			l.status = append(l.status, layout)
		}
	}
	l.exec("ALTER DATABASE " + l.schema() + " CHARACTER SET " + set.Name)
	l.create()
	return l
}

// body is that of row n, with a text of the set.
func (l *inCharset) body(layout *layouts.Layout, n int) string {
	text := fmt.Sprint("body ", n, " ", l.set.Text)
	if layout.LogOnly() {
		return `"` + text + `"`
	}
	return text
}

// commit writes row n of each of some layouts.
func (l *inCharset) commit(n int, of []*layouts.Layout) {
	l.t.Helper()
	for _, layout := range of {
		query, args := layout.Insert(n, topics[0], l.body(layout, n))
		l.exec(query, args...)
	}
}

// hide writes rows that the log does not show.
func (l *inCharset) hide(n int) {
	l.t.Helper()
	conn, err := l.sql.Conn(l.t.Context())
	testkit.Must(l.t, err)
	defer conn.Close()
	run := func(query string, args ...any) {
		_, err := conn.ExecContext(l.t.Context(), query, args...)
		testkit.Must(l.t, err)
	}
	run("SET SESSION sql_log_bin = 0")
	defer run("SET SESSION sql_log_bin = 1")
	for _, layout := range l.status {
		query, args := layout.Insert(n, topics[0], l.body(layout, n))
		run(query, args...)
	}
}

// broken writes rows whose body, or key where the body is no text, is none in gbk.
func (l *inCharset) broken(n int) {
	l.t.Helper()
	for _, layout := range l.all {
		query, args := layout.Insert(n, topics[0], l.body(layout, n))
		value := l.body(layout, n)
		if layout.LogOnly() {
			value = layout.Key(n)
		}
		parts := strings.Split(query, "?")
		for i, arg := range args {
			if arg == value {
				parts[i], parts[i+1] = parts[i]+"_gbk x'6162D6D0A2A0'"+parts[i+1], ""
				parts = append(parts[:i+1], parts[i+2:]...)
				args = append(args[:i:i], args[i+1:]...)
				break
			}
		}
		l.exec(strings.Join(parts, "?"), args...)
	}
}

// A49: every layout, unaltered, in databases whose default is latin1, gbk or utf8mb3, with text of that set: rows of the log and rows that only a sweep
// finds, once each, in UTF-8; and in gbk rows that are no text, which are FAILED alone.
func TestA49_EveryLayoutInEveryCharacterSet(t *testing.T) {
	for _, set := range layouts.Charsets() {
		t.Run(set.Name, func(t *testing.T) {
			if set.Name != "gbk" {
				relay.Long(t)
			}
			onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
				t.Parallel()
				l := newInCharset(t, flavor, set)
				l.Start(t)
				l.commit(1, l.all)
				for _, layout := range l.status {
					l.is(layout, 1, "sent", layout.Written)
				}
				if paths := l.metricBy("messages_total", "path"); paths["sweep"] != 0 {
					t.Errorf("rows of the log went by %v", paths)
				}
				l.hide(2)
				for _, layout := range l.status {
					l.is(layout, 2, "sent", layout.Written)
				}
				if set.Name == "gbk" {
					l.broken(3)
					l.refusedAlone(3)
				}
				l.commit(4, l.all)
				l.published(1, 2, 4)
				for _, layout := range l.status {
					l.is(layout, 4, "sent", layout.Written)
				}
				l.wait("every outcome to be written", func() bool { m := l.metrics(); return m["ack_pending"] == 0 && m["in_flight_messages"] == 0 })
				l.Kill()
				l.Start(t)
				l.swept()
				l.published(1, 2, 4)
				l.shown()
				l.stopInTime()
			})
		})
	}
}

// published waits for the rows and shows that the broker has each once, in UTF-8, and nothing else.
func (l *inCharset) published(rows ...int) {
	l.t.Helper()
	want := map[string]bool{}
	for _, layout := range l.all {
		for _, n := range rows {
			if n != 2 || !layout.LogOnly() {
				want[layout.MessageID(n)+" "+layout.Key(n)+" "+l.body(layout, n)] = true
			}
		}
	}
	n := len(rows)*len(l.all) - 2 // row 2 is in the tables with a status only; some layouts make the same message id
	l.wait("the messages", func() bool { return len(relay.ReadAll(l.t, l.broker, l.topics...)) >= n })
	got := relay.ReadAll(l.t, l.broker, l.topics...)
	if len(got) != n {
		l.t.Errorf("%d messages of %d rows", len(got), n)
	}
	for _, r := range got {
		if one := r.MessageID + " " + r.Key + " " + string(r.Body); !want[one] {
			l.t.Errorf("published %q", one)
		}
	}
}

// refusedAlone waits until row n is FAILED, or PENDING for long, everywhere, with its column and the place in the reason.
func (l *inCharset) refusedAlone(n int) {
	l.t.Helper()
	for _, layout := range l.status {
		status, reason := "failed", "TRUE"
		if !layout.Has("failed") {
			status = "pending"
		}
		if column := l.reasonColumn(layout); column != "" {
			reason = column + " LIKE '%column " + layout.Body + " (body): its bytes from offset 4 on are no text in gbk'"
		}
		l.is(layout, n, status, reason)
	}
	l.wait("the rows of the log-only tables to be kept", func() bool { return len(l.kept()) == 2 })
	for _, m := range l.kept() {
		if !strings.Contains(m.Reason, "column aggregateid (key): its bytes from offset 4 on are no text in gbk") {
			l.t.Errorf("kept %+v", m)
		}
	}
}

func (l *inCharset) reasonColumn(layout *layouts.Layout) string {
	switch layout.Name {
	case "A", "A2", "B":
		return "fail_reason"
	case "D":
		return "error_message"
	}
	return ""
}

// shown compares what a person sees.
func (l *inCharset) shown() {
	l.t.Helper()
	for _, layout := range l.status {
		out, _, code := l.Command(l.t, "messages", "show", layout.MessageID(1), "--table", l.schema()+"."+layout.Table)
		if code != 0 || !strings.Contains(out, layout.MessageID(1)) {
			l.t.Errorf("layout %s: exit %d\n%s", layout.Name, code, out)
		}
	}
	out, _, _ := l.Command(l.t, "doctor")
	name := strings.TrimSuffix(l.set.Name, "mb3") // MySQL 5.7 writes utf8
	out = strings.ReplaceAll(out, l.set.Name, name)
	if words := " in " + name + ": read as UTF-8; a character that " + name + " does not have"; !strings.Contains(strings.Join(strings.Fields(out), " "), words) {
		l.t.Errorf("doctor does not say %q:\n%s", words, out)
	}
}
