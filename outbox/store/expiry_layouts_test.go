package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// times sets every time of row n but the due time: of its creation, and of what came last.
func (b *bench) times(l *layouts.Layout, n int, status, made, last string) {
	b.Helper()
	set := []string{l.Status + " = '" + l.Codes[status] + "'"}
	for _, role := range []table.Column{table.CreatedAt, table.LastExecTime, table.SentAt, table.UpdatedAt} {
		at := last
		if role == table.CreatedAt {
			at = made
		}
		if b.table.Has(role) && (role != table.LastExecTime || !strings.EqualFold(b.table.ColumnName(role), b.table.ColumnName(table.UpdatedAt))) {
			set = append(set, b.table.Column(role)+" = NOW() - INTERVAL "+at)
		}
	}
	testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET "+strings.Join(set, ", ")+" WHERE "+l.Where(n))
}

// D19: in every layout only the rows that are final for long enough leave, whatever its keys, codes and times are; what the consumers
// have consumed leaves with what was sent, and what they have suspended stays.
func TestD19_EveryLayout(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		of := []table.Expiry{sentMoves, logged}
		if l.Name == "binary" { // which has no time
			findings, _, err := CheckRetention(b.Ctx, b.DB, b.Table, of[:1])
			testkit.Must(b, err)
			if len(findings) != 1 || findings[0].Severity != server.Fault || !strings.Contains(findings[0].What, "no column says since when a row is SENT") {
				b.Errorf("%+v", findings)
			}
			return
		}
		for _, suffix := range []string{table.ArchiveSuffix, table.FailedSuffix} {
			statements, _ := table.MoveDDL(b.Schema, l.Table, suffix)
			for _, statement := range statements {
				testkit.Exec(b, b.DB, statement)
			}
		}
		findings, _, err := CheckRetention(b.Ctx, b.DB, b.Table, of)
		testkit.Must(b, err)
		if server.HasFault(findings) {
			b.Fatalf("%+v", findings)
		}
		const long, lately = "40 DAY", "1 HOUR"
		n, leave, stay := 0, []int{}, []int{}
		row := func(status, made, last string, leaves bool) {
			if l.Codes[status] == "" {
				return
			}
			n++
			b.Add(l, n)
			b.times(l, n, status, made, last)
			if leaves {
				leave = append(leave, n)
			} else {
				stay = append(stay, n)
			}
		}
		for range 3 {
			row("sent", long, long, true)
			row("sent", long, lately, false)
			row("pending", long, long, false)
			row("sending", long, long, false)
			row("failed", long, long, true)
			row("failed", long, lately, l.Name == "D" || l.Name == "char") // which do not say when a row failed: its age is that of its creation
			row("consumed", long, long, true)
			row("suspended", long, long, false)
			row("sent", lately, lately, false)
		}
		for i, ids := range b.walkAllOf(of) {
			if left := b.expire(of[i], ids); left.Skipped+left.Refused > 0 {
				b.Errorf("%+v", left)
			}
		}
		count := func(table, where string) (rows int) {
			testkit.Must(b, b.DB.QueryRow("SELECT COUNT(*) FROM `"+table+"` WHERE "+where).Scan(&rows))
			return rows
		}
		for _, n := range leave {
			moved := count(l.Table+table.ArchiveSuffix, l.Where(n)) + count(l.Table+table.FailedSuffix, l.Where(n))
			if here := count(l.Table, l.Where(n)); here != 0 || moved != 1 {
				b.Errorf("row %d is there %d times, and %d times where it moves to", n, here, moved)
			}
		}
		for _, n := range stay {
			if count(l.Table, l.Where(n)) != 1 {
				b.Errorf("row %d has left", n)
			}
		}
		if l.Has("failed") != (count(l.Table+table.FailedSuffix, "moved_at IS NOT NULL") >= 3) {
			b.Error("the log of FAILED rows is not right")
		}
	})
}

func (b *bench) walkAllOf(of []table.Expiry) [][]string {
	b.Helper()
	ids, _ := b.walkAll(of...)
	return ids
}

// Where the keys are in no order of time the walk goes by the index on status and creation, in pages, and without it through the
// whole table; it finds the same rows.
func TestWalkWithoutOrder(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			i := slices.IndexFunc(layouts.All(), func(l *layouts.Layout) bool { return l.Name == "D" })
			l := layouts.All()[i]
			b := newBench(t, flavor)
			testkit.Exec(b, b.DB, l.Create())
			b.Quoted = "`" + b.Schema + "`.`" + l.Table + "`"
			b.LoadAsIs(tabletest.MappingOf(b.Bench, l))
			const rows = 2600 // of which 2400 are SENT and old, many of one second
			var values []string
			for n := range rows {
				status := "SENT"
				if n%13 == 0 {
					status = "PENDING"
				}
				values = append(values, fmt.Sprintf("('%s', 'e', '{}', '%s', NOW() - INTERVAL %d DAY, NOW() - INTERVAL 9 DAY)", l.MessageID(n), status, 9+n/900))
			}
			testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (message_id, event_type, payload, status, created_at, sent_at) VALUES "+strings.Join(values, ", "))
			found := func() []string {
				ids, pages := b.walkAll(sentWeek, table.Expiry{Status: outbox.Failed, Age: time.Hour})
				if pages < 3 || len(ids[0]) != 2400 || len(ids[1]) != 0 {
					b.Fatalf("%d rows on %d pages (%s)", len(ids[0]), pages, b.table.ways())
				}
				slices.Sort(ids[0])
				return ids[0]
			}
			if !strings.Contains(b.table.ways(), "by the index status") {
				b.Fatal(b.table.ways())
			}
			s := b.table.walkByAge(ageCursor{made: "2026-01-01 00:00:00", id: "x"}, leaving{code: "SENT"}, sentWeek)
			plan, err := server.Show(b.Ctx, b.DB, "EXPLAIN FORMAT=TRADITIONAL "+s.String(), s.Args...)
			testkit.Must(b, err)
			if plan[0]["key"] != "status" || plan[0]["type"] != "range" || strings.Contains(plan[0]["extra"], "filesort") {
				b.Errorf("the plan is %v", plan)
			}
			byIndex := found()
			testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" DROP INDEX status") // while the relay runs
			if whole := found(); !slices.Equal(byIndex, whole) || !strings.Contains(b.table.ways(), "reading the whole table") {
				b.Errorf("without the index %d rows are found, with it %d (%s)", len(whole), len(byIndex), b.table.ways())
			}
		})
	}
}
