package table

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// layoutsOfTheIndex are the indexes on the status that tables come with.
var layoutsOfTheIndex = []layoutOfTheIndex{
	{"due", "status, next_retry_time", byDue, false, ""},
	{"due and id", "status, next_retry_time, id", byDue, false, ""},
	{"due, key of bytes", "status, next_retry_time", byDue, false, "BINARY(4)"},
	{"attempts and due", "status, retry_count, next_retry_time", byAttempts, false, ""},
	{"created", "status, created_at", byCreated, false, ""},
	{"created, key of text, no due time", "status, created_at", byCreated, true, "VARCHAR(64) COLLATE utf8mb4_general_ci"},
	{"status", "status", byStatus, false, ""},
	{"status, key of text", "status", byStatus, false, "VARCHAR(64) COLLATE utf8mb4_general_ci"},
	{"none", "", byKey, false, ""},
}

type layoutOfTheIndex struct {
	name     string
	columns  string
	strategy strategy
	noDue    bool   // no column plays NextRetryTime
	key      string // the type of the primary key; "" is the preset's
}

// id is a primary key as SQL. Neighbours of a text key differ in case.
func (l *layoutOfTheIndex) id(n int) string {
	switch {
	case l.key == "":
		return fmt.Sprint(n)
	case strings.HasPrefix(l.key, "BINARY"):
		return fmt.Sprintf("x'%08x'", n)
	}
	return fmt.Sprintf("'%s%d'", []string{"k", "K"}[n%2], n)
}

// number is the other way round: of an identity's key.
func (l *layoutOfTheIndex) number(id string) (n int) {
	if strings.HasPrefix(l.key, "BINARY") {
		_, _ = fmt.Sscanf(id, "%x", &n)
	} else {
		_, _ = fmt.Sscan(strings.TrimLeft(id, "kK"), &n)
	}
	return n
}

// reindex gives the table another index on the status, and its columns values that the preset's DDL does not allow.
func (b *bench) reindex(l layoutOfTheIndex) {
	b.Helper()
	alter := "ALTER TABLE " + b.name + " DROP INDEX idx_sweep, MODIFY created_at DATETIME(3) NULL DEFAULT CURRENT_TIMESTAMP(3), MODIFY retry_count INT NULL DEFAULT 0"
	if l.columns != "" {
		alter += ", ADD INDEX by_layout (" + l.columns + ")"
	}
	if l.key != "" {
		alter += ", MODIFY id " + l.key + " NOT NULL"
	}
	testkit.Exec(b, b.db, alter)
	m := b.mapping("outbox")
	if l.noDue {
		m.Set(NextRetryTime, "")
	}
	t, findings, err := Load(b.ctx, b.db, m)
	testkit.Must(b, err)
	if t == nil {
		b.Fatalf("findings %+v", findings)
	}
	if warned := slices.ContainsFunc(findings, func(f server.Finding) bool { return f.Severity == server.Warning }); warned != (l.columns == "") {
		b.Errorf("findings %+v", findings)
	}
	b.use(t)
}

// Each query of a sweep is a range of the index that the table has, in the index's order, also in a table that is mostly SENT:
// no sort of what waits, and no row of another status.
func TestSweepStaysOnTheIndexThatIsThere(t *testing.T) {
	for _, layout := range layoutsOfTheIndex {
		t.Run(layout.name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.insertMany(3000)
				b.mostlySent()
				b.reindex(layout)
				testkit.Exec(b, b.db, "ANALYZE TABLE "+b.name)
				if b.table.strategy != layout.strategy {
					b.Fatalf("strategy %d, want %d", b.table.strategy, layout.strategy)
				}
				for _, threshold := range []time.Duration{0, time.Minute} {
					query := DueQuery{Threshold: threshold, Horizon: time.Minute, ExpiredClaims: threshold, Limit: 100}
					for _, in := range b.table.stretches(query) {
						for _, at := range []Cursor{{}, {id: b.table.nobody(), time: "2026-01-02 03:04:05.678"}} {
							at.attempts.value = "0"
							b.inOrder(fmt.Sprintf("%+v behind %+v", in, at), b.table.due(in, at, query), layout.strategy, at.id != "")
						}
					}
				}
				b.listsInOrder(layout.strategy)
				if layout.strategy == byAttempts {
					for _, after := range []attemptCount{{}, {known: true}, {known: true, value: "0"}} {
						b.inOrder("next attempts", b.table.attemptsBehind(outbox.Pending, after), byAttempts, false)
					}
				}
				f, err := b.table.ExplainSweep(b.ctx, b.db)
				if testkit.Must(b, err); (f.Severity == server.OK) != (layout.strategy != byKey) {
					b.Errorf("doctor says %+v", f)
				}
			})
		})
	}
}

func (b *bench) inOrder(what string, s *statement, how strategy, behind bool) {
	b.Helper()
	key, access, extra := b.explain(s)
	want := "by_layout"
	if how == byKey {
		want = "PRIMARY"
	}
	switch {
	case access == "": // no row can match
	case key != want, strings.Contains(extra, "filesort"), strings.Contains(extra, "temporary"):
		b.Errorf("%s: key %s, type %s, extra %s", what, key, access, extra)
	case access == "ALL", access == "index" && (how != byKey || behind):
		b.Errorf("%s: key %s, type %s, extra %s", what, key, access, extra)
	}
}

// modelRow is a row in the model; times are seconds from now, nil is NULL.
type modelRow struct {
	status                    int
	due, made, claimed, count *int
	touched                   bool // changed while the list was read: it may be in it or not
}

func drawRow(r *rapid.T) *modelRow {
	maybe := func(name string, values ...int) *int {
		if i := rapid.IntRange(-1, len(values)-1).Draw(r, name); i >= 0 {
			return &values[i]
		}
		return nil
	}
	return &modelRow{
		status: rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3, 9}).Draw(r, "status"),
		due:    maybe("due", -3600, -3600, -100, 30, 7200), made: maybe("made", -3600, -3600, -1800, -5, 3600),
		claimed: maybe("claimed", -3600, -5, 3, 7200), count: maybe("count", 0, 0, 1, 2, 9),
	}
}

// wanted is the rule of DueQuery, row by row.
func (m *modelRow) wanted(q DueQuery, noDue bool) bool {
	within := func(v *int, d time.Duration) bool { return time.Duration(*v)*time.Second <= d }
	switch {
	case m.status == 0 && !noDue && m.due != nil:
		return within(m.due, q.Horizon)
	case m.status == 0:
		return q.Threshold == 0 || m.made == nil || *m.made > 0 || within(m.made, -q.Threshold)
	case m.status == 1:
		return q.ExpiredClaims == 0 || m.claimed == nil || within(m.claimed, -q.ExpiredClaims) || time.Duration(*m.claimed)*time.Second > claimAhead
	}
	return false
}

func (m *modelRow) sql(n int, id string) string {
	at := func(v *int) string {
		if v == nil {
			return "NULL"
		}
		return fmt.Sprintf("NOW(3) + INTERVAL %d SECOND", *v)
	}
	count := "NULL"
	if m.count != nil {
		count = fmt.Sprint(*m.count)
	}
	return fmt.Sprintf("(%s, 'order', 'key-%d', 'orders', '{}', %d, %s, %s, %s, %s)", id, n, m.status, at(m.due), at(m.made), at(m.claimed), count)
}

const insertModel = " (id, biz_type, biz_key, topic, message_body, status, next_retry_time, created_at, last_exec_time, retry_count) VALUES "

// Whatever index the table has, whatever the size of a page, and whatever happens to other rows meanwhile: each row that is due
// comes once, and no other row.
func TestSweepAgainstAModel(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			var tables []*bench
			for _, layout := range layoutsOfTheIndex {
				b := newBench(t, flavor)
				b.create("outbox")
				b.reindex(layout)
				tables = append(tables, b)
			}
			rapid.Check(t, func(r *rapid.T) {
				i := rapid.IntRange(0, len(tables)-1).Draw(r, "layout")
				tables[i].checkModel(r, &layoutsOfTheIndex[i])
			})
		})
	}
}

func (b *bench) checkModel(r *rapid.T, l *layoutOfTheIndex) {
	testkit.Exec(b, b.db, "DELETE FROM "+b.name)
	var rows []*modelRow
	var values []string
	add := func(m *modelRow) {
		rows = append(rows, m)
		values = append(values, m.sql(len(rows), l.id(len(rows))))
	}
	for range rapid.IntRange(1, 40).Draw(r, "rows") {
		add(drawRow(r))
	}
	testkit.Exec(b, b.db, "INSERT INTO "+b.name+insertModel+strings.Join(values, ", "))
	long := rapid.SampledFrom([]time.Duration{0, time.Minute})
	q := DueQuery{
		Threshold: long.Draw(r, "threshold"), Horizon: long.Draw(r, "horizon"), ExpiredClaims: long.Draw(r, "expired"),
		Limit: rapid.SampledFrom([]int{1, 2, 3, 7, 500}).Draw(r, "limit"),
	}
	seen := map[int]int{}
	for at, pages := (Cursor{}), 0; !at.Done(); pages++ {
		if pages > 200 {
			r.Fatalf("no end after %d pages: %+v", pages, at)
		}
		page, next, err := b.store.Due(b.ctx, b.table.name, at, q)
		if err != nil {
			r.Fatal(err)
		}
		for _, c := range page {
			seen[l.number(c.ID)]++
		}
		if rapid.IntRange(0, 3).Draw(r, "change") == 0 {
			n := rapid.IntRange(1, len(rows)).Draw(r, "row")
			id := l.id(n)
			rows[n-1].touched = true
			testkit.Exec(b, b.db, rapid.SampledFrom([]string{
				"UPDATE " + b.name + " SET status=2 WHERE id=" + id,
				"UPDATE " + b.name + " SET status=0, retry_count=COALESCE(retry_count, 0)+1, next_retry_time=NOW(3) + INTERVAL 10 SECOND WHERE id=" + id,
				"DELETE FROM " + b.name + " WHERE id=" + id,
			}).Draw(r, "how"))
			added := drawRow(r)
			added.touched = true
			add(added)
			testkit.Exec(b, b.db, "INSERT INTO "+b.name+insertModel+values[len(values)-1])
		}
		at = next
	}
	for i, m := range rows {
		id := i + 1
		switch n := seen[id]; {
		case m.touched:
		case m.wanted(q, l.noDue) && n != 1:
			r.Errorf("row %d %s with %+v comes %d times", id, m.sql(id, ""), q, n)
		case !m.wanted(q, l.noDue) && n != 0:
			r.Errorf("row %d %s with %+v comes, and is not due", id, m.sql(id, ""), q)
		}
	}
}

// Each layout as its owners have it is swept by its own index, in that index's order; A2 has none.
func TestEachLayoutIsSweptByItsIndex(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		for n := range 40 {
			b.add(l, n+1)
		}
		testkit.Exec(b, b.db, "UPDATE "+b.name+" SET "+l.Status+" = ? WHERE NOT ("+l.Where(1)+")", l.Codes["sent"])
		testkit.Exec(b, b.db, "ANALYZE TABLE "+b.name)
		index := b.table.sweepIndex.Load()
		if index == nil || (*index == "PRIMARY") != (l.Name == "A2") {
			b.Fatalf("strategy %d with index %v", b.table.strategy, index)
		}
		f, err := b.table.ExplainSweep(b.ctx, b.db)
		if testkit.Must(b, err); (f.Severity == server.OK) != (l.Name != "A2") {
			b.Errorf("found %+v", f)
		}
		for _, query := range b.table.sweepQueries() {
			key, access, extra := b.explain(query())
			if access != "" && (key != *index || strings.Contains(extra, "filesort") || strings.Contains(extra, "temporary")) {
				b.Errorf("key %s, type %s, extra %s", key, access, extra)
			}
		}
	})
}
