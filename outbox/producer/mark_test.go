package producer_test

import (
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/producer"
)

// words are the columns and codes of each layout that a mark changes.
var words = map[producer.Preset]struct{ status, pending, sent, failed, taken, reason, due string }{
	producer.Outbox:            {"status", "0", "2", "3", "9", "fail_reason", "next_retry_time"},
	producer.TLocalMessage:     {"status", "0", "2", "3", "9", "fail_reason", "next_retry_time"},
	producer.TLocalMessage2:    {"status", "0", "2", "3", "9", "fail_reason", "next_retry_time"},
	producer.MessageState:      {"state", "pending", "sent", "failed", "consumed", "fail_reason", "next_retry_at"},
	producer.LocalMessageTable: {"state", "0", "1", "3", "2", "", "next_retry_time"},
	producer.LocalMessage:      {"status", "PENDING", "SENT", "FAILED", "CONSUMED", "error_message", ""},
	producer.OrderChain:        {"status", "0", "2", "3", "9", "", "next_retry_time"},
}

// marked is a table with one row of a layout.
type marked struct {
	t      *testing.T
	db     *sql.DB
	preset producer.Preset
	name   string
	table  *producer.Table
	id     string
}

func newMarked(t *testing.T, db *sql.DB, preset producer.Preset) *marked {
	t.Helper()
	m := &marked{t: t, db: db, preset: preset, name: create(t, db, preset)}
	m.table = newTable(t, preset, producer.Options{Table: m.name, Writer: "shop", Codes: map[producer.State]string{producer.Failed: words[preset].failed}})
	m.again()
	return m
}

// again empties the table and inserts the row.
func (m *marked) again() {
	m.t.Helper()
	testkit.Exec(m.t, m.db, "DELETE FROM `"+m.name+"`")
	id, err := m.table.Insert(m.t.Context(), m.db, whole[m.preset].message)
	testkit.Must(m.t, err)
	m.id = id
}

// is checks the row.
func (m *marked) is(what, status string, attempts int, more ...string) {
	m.t.Helper()
	where := fmt.Sprintf("`%s` = '%s' AND retry_count = %d", words[m.preset].status, status, attempts)
	for _, condition := range more {
		where += " AND " + condition
	}
	if n := count(m.t, m.db, "SELECT COUNT(*) FROM `"+m.name+"` WHERE "+where); n != 1 {
		m.t.Errorf("%s, %s: the row is not %s", m.preset, what, where)
	}
}

// set writes a status by hand.
func (m *marked) set(status string) {
	m.t.Helper()
	testkit.Exec(m.t, m.db, "UPDATE `"+m.name+"` SET `"+words[m.preset].status+"` = ?", status)
}

// want checks what a mark answers.
func (m *marked) want(changed bool) func(bool, error) {
	return func(got bool, err error) {
		m.t.Helper()
		if err != nil || got != changed {
			m.t.Errorf("%s: changed %v, want %v: %v", m.preset, got, changed, err)
		}
	}
}

// An application marks what it has sent, what can never be sent, and an attempt that failed, on the table of each layout. A mark changes only a row that is
// still the application's, and one that is repeated changes nothing.
func TestG30_MarksOfEveryLayout(t *testing.T) {
	onBoth(t, func(t *testing.T, db *sql.DB) {
		for preset, w := range words {
			m := newMarked(t, db, preset)
			ctx, long := t.Context(), strings.Repeat("ü", 3000)
			m.want(true)(m.table.MarkSent(ctx, db, m.id))
			m.is("sent", w.sent, 0)
			m.want(false)(m.table.MarkSent(ctx, db, m.id))
			m.want(false)(m.table.MarkFailed(ctx, db, m.id, "late"))
			m.want(false)(m.table.CountAttempt(ctx, db, m.id, 0, 0, "late"))
			m.is("sent, marked again", w.sent, 0)
			m.again()
			m.want(true)(m.table.MarkFailed(ctx, db, m.id, long))
			m.is("failed", w.failed, 0)
			if w.reason != "" {
				m.is("failed", w.failed, 0, fmt.Sprintf("`%s` LIKE 'üüü%%'", w.reason))
			}
			m.want(true)(m.table.MarkSent(ctx, db, m.id)) // it has reached the broker after all
			m.is("failed and then sent", w.sent, 0)
			m.set(w.taken)
			m.want(false)(m.table.MarkSent(ctx, db, m.id))
			m.is("a state of the consumers", w.taken, 0)
			m.again()
			next := time.Duration(0)
			if w.due != "" {
				next = time.Minute
			}
			m.want(true)(m.table.CountAttempt(ctx, db, m.id, 0, next, long))
			m.want(false)(m.table.CountAttempt(ctx, db, m.id, 0, next, "again")) // its answer was lost
			m.is("one attempt", w.pending, 1)
			m.want(true)(m.table.CountAttempt(ctx, db, m.id, 1, next, "second"))
			m.is("two attempts", w.pending, 2)
			if w.due != "" {
				m.is("its due time", w.pending, 2, fmt.Sprintf("TIMESTAMPDIFF(SECOND, NOW(3), `%s`) BETWEEN 1 AND 60", w.due))
			}
			m.want(false)(m.table.MarkSent(ctx, db, "no:such row"))
		}
	})
}

// A mark that the table cannot hold is an error, and no statement is sent.
func TestG30_MarksThatATableCannotHold(t *testing.T) {
	for _, c := range []struct {
		preset producer.Preset
		call   func(*producer.Table) (bool, error)
		want   string
	}{
		{producer.LocalMessageTable, func(tb *producer.Table) (bool, error) { return tb.MarkFailed(t.Context(), nil, "m", "why") }, "no code for failed"},
		{producer.DebeziumOutbox, func(tb *producer.Table) (bool, error) { return tb.MarkSent(t.Context(), nil, "m") }, "no code for sent"},
		{producer.LocalMessage, func(tb *producer.Table) (bool, error) {
			return tb.CountAttempt(t.Context(), nil, "m", 0, time.Second, "")
		}, "no column for next_retry_time"},
		{producer.TLocalMessage, func(tb *producer.Table) (bool, error) { return tb.MarkSent(t.Context(), nil, "") }, "the message id is empty"},
	} {
		if _, err := c.call(newTable(t, c.preset, producer.Options{})); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.preset, err, c.want)
		}
	}
}

var (
	marksOfLayout = regexp.MustCompile("(?s)\n#### Marks: ([^\n]+)\n(?:[^#`]|`[^`])*```sql\n(.*?)\n```")
	valueOf       = regexp.MustCompile(`(\w+) = \?|INTERVAL \? SECOND`)
)

// The page for applications has the marks of each layout in SQL. They run on the table as its owners have it, and do what the package does.
func TestG30_TheMarksOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/applications.md")
	testkit.Must(t, err)
	statements := map[producer.Preset][]string{}
	for _, found := range marksOfLayout.FindAllStringSubmatch(string(page), -1) {
		statements[producer.Preset(found[1])] = strings.Split(strings.TrimSuffix(found[2], ";"), ";\n")
	}
	onBoth(t, func(t *testing.T, db *sql.DB) {
		for preset, w := range words {
			if preset == producer.Outbox {
				continue // its own layout takes the statements of t_local_message
			}
			m := newMarked(t, db, preset)
			if len(statements[preset]) != 3 {
				t.Errorf("the page has %d marks of %s", len(statements[preset]), preset)
				continue
			}
			for i, statement := range statements[preset] {
				m.again()
				want := []struct {
					status   string
					attempts int
				}{{w.sent, 0}, {w.failed, 0}, {w.pending, 1}}[i]
				for n := range 2 {
					if changed := m.run(statement); changed != int64(1-n) {
						t.Errorf("%s: run %d changes %d rows: %s", preset, n+1, changed, statement)
					}
				}
				m.is(statement, want.status, want.attempts)
			}
		}
	})
}

// run runs a statement of the page on the row, with values by the columns' names.
func (m *marked) run(statement string) int64 {
	m.t.Helper()
	message, args := whole[m.preset].message, []any{}
	for _, found := range valueOf.FindAllStringSubmatch(statement, -1) {
		switch column := found[1]; column {
		case "":
			args = append(args, 60)
		case "message_id":
			args = append(args, m.id)
		case "biz_type", "message_type":
			args = append(args, message.BizType)
		case "biz_key", "message_key":
			args = append(args, message.Key)
		case "retry_count":
			args = append(args, 0)
		default:
			args = append(args, "shop")
		}
	}
	_, rest, _ := strings.Cut(strings.TrimPrefix(statement, "UPDATE "), " ")
	done := testkit.Exec(m.t, m.db, "UPDATE `"+m.name+"` "+rest, args...)
	n, err := done.RowsAffected()
	testkit.Must(m.t, err)
	return n
}
