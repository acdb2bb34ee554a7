package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// Each query of a sweep is a range of the index that the table has, in the index's order, also in a table that is mostly SENT:
// no sort of what waits, and no row of another status.
func TestSweepStaysOnTheIndexThatIsThere(t *testing.T) {
	for _, layout := range tabletest.IndexLayouts {
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.InsertMany(3000)
				b.MostlySent()
				b.Reindex(layout)
				testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
				if b.table.Strategy() != layout.Strategy {
					b.Fatalf("strategy %d, want %d", b.table.Strategy(), layout.Strategy)
				}
				for _, threshold := range []time.Duration{0, time.Minute} {
					query := pageQuery{DueQuery: table.DueQuery{Threshold: threshold, Horizon: time.Minute, ExpiredClaims: threshold, Limit: 100}}
					for _, in := range b.table.ranges(query) {
						for _, at := range []table.Cursor{{}, {LastID: b.table.NoID(), LastTime: "2026-01-02 03:04:05.678"}} {
							at.Attempts.Value = "0"
							b.InOrder(fmt.Sprintf("%+v behind %+v", in, at), b.table.due(in, at, query), layout.Strategy, at.LastID != "")
						}
					}
				}
				if layout.Strategy == table.ByAttempts {
					for _, after := range []table.AttemptCount{{}, {Known: true}, {Known: true, Value: "0"}} {
						b.InOrder("next attempts", b.table.AttemptsOf(table.CodeOf("0"), after), table.ByAttempts, false)
					}
				}
				f, err := ExplainSweep(b.Ctx, b.DB, b.Table)
				if testkit.Must(b, err); (f.Severity == server.OK) != (layout.Strategy != table.ByKey) {
					b.Errorf("doctor says %+v", f)
				}
			})
		})
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
func (m *modelRow) wanted(q table.DueQuery, noDue bool) bool {
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
			for _, layout := range tabletest.IndexLayouts {
				b := newBench(t, flavor)
				b.Create("outbox")
				b.Reindex(layout)
				tables = append(tables, b)
			}
			rapid.Check(t, func(r *rapid.T) {
				i := rapid.IntRange(0, len(tables)-1).Draw(r, "layout")
				tables[i].checkModel(r, &tabletest.IndexLayouts[i])
			})
		})
	}
}

func (b *bench) checkModel(r *rapid.T, l *tabletest.IndexLayout) {
	testkit.Exec(b, b.DB, "DELETE FROM "+b.Quoted)
	var rows []*modelRow
	var values []string
	add := func(m *modelRow) {
		rows = append(rows, m)
		values = append(values, m.sql(len(rows), l.ID(len(rows))))
	}
	for range rapid.IntRange(1, 40).Draw(r, "rows") {
		add(drawRow(r))
	}
	testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+insertModel+strings.Join(values, ", "))
	long := rapid.SampledFrom([]time.Duration{0, time.Minute})
	q := table.DueQuery{
		Threshold: long.Draw(r, "threshold"), Horizon: long.Draw(r, "horizon"), ExpiredClaims: long.Draw(r, "expired"),
		Limit: rapid.SampledFrom([]int{1, 2, 3, 7, 500}).Draw(r, "limit"),
	}
	seen := map[int]int{}
	for at, pages := (table.Cursor{}), 0; !at.Done(); pages++ {
		if pages > 200 {
			r.Fatalf("no end after %d pages: %+v", pages, at)
		}
		page, next, err := b.store.Due(b.Ctx, b.table.Name(), at, q)
		if err != nil {
			r.Fatal(err)
		}
		for _, c := range page {
			seen[l.Number(c.ID)]++
		}
		if rapid.IntRange(0, 3).Draw(r, "change") == 0 {
			n := rapid.IntRange(1, len(rows)).Draw(r, "row")
			id := l.ID(n)
			rows[n-1].touched = true
			testkit.Exec(b, b.DB, rapid.SampledFrom([]string{
				"UPDATE " + b.Quoted + " SET status=2 WHERE id=" + id,
				"UPDATE " + b.Quoted + " SET status=0, retry_count=COALESCE(retry_count, 0)+1, next_retry_time=NOW(3) + INTERVAL 10 SECOND WHERE id=" + id,
				"DELETE FROM " + b.Quoted + " WHERE id=" + id,
			}).Draw(r, "how"))
			added := drawRow(r)
			added.touched = true
			add(added)
			testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+insertModel+values[len(values)-1])
		}
		at = next
	}
	for i, m := range rows {
		id := i + 1
		switch n := seen[id]; {
		case m.touched:
		case m.wanted(q, l.NoDue) && n != 1:
			r.Errorf("row %d %s with %+v comes %d times", id, m.sql(id, ""), q, n)
		case !m.wanted(q, l.NoDue) && n != 0:
			r.Errorf("row %d %s with %+v comes, and is not due", id, m.sql(id, ""), q)
		}
	}
}

// Each layout as its owners have it is swept by its own index, in that index's order; A2 has none.
func TestEachLayoutIsSweptByItsIndex(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		for n := range 40 {
			b.Add(l, n+1)
		}
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET "+l.Status+" = ? WHERE NOT ("+l.Where(1)+")", l.Codes["sent"])
		testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
		index := b.table.SweepIndex()
		if index == "" || (index == "PRIMARY") != (l.Name == "A2") {
			b.Fatalf("strategy %d with index %v", b.table.Strategy(), index)
		}
		f, err := ExplainSweep(b.Ctx, b.DB, b.Table)
		if testkit.Must(b, err); (f.Severity == server.OK) != (l.Name != "A2") {
			b.Errorf("found %+v", f)
		}
		for _, query := range b.table.sweepQueries() {
			key, access, extra := b.Explain(query())
			if access != "" && (key != index || strings.Contains(extra, "filesort") || strings.Contains(extra, "temporary")) {
				b.Errorf("key %s, type %s, extra %s", key, access, extra)
			}
		}
	})
}
