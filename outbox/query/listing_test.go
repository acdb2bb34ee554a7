package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// listed goes through all pages of a list.
func (b *bench) listed(q Listing) (rows []Row) {
	b.Helper()
	if q.Limit == 0 {
		q.Limit = 2
	}
	for range 100 {
		page, err := b.store.List(b.Ctx, b.table.Name(), q)
		testkit.Must(b, err)
		if page.Scan != "" {
			b.Fatalf("%+v: %s", q, page.Scan)
		}
		rows = append(rows, page.Rows...)
		if q.After = page.Next; q.After == "" {
			return rows
		}
	}
	b.Fatalf("%+v: the pages have no end", q)
	return nil
}

func messageIDs(rows []Row) (ids []string) {
	for _, r := range rows {
		ids = append(ids, r.MessageID)
	}
	slices.Sort(ids)
	return ids
}

// In every layout the rows of a state are listed page by page, each once, and found by primary key, message id and business key; those
// that were refused are listed as failed, whatever the table has for that. A failed one is retried and due at once.
func TestMessagesInEveryLayout(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		var want []string
		ids := map[int]outbox.Identity{}
		for n := 1; n <= 5; n++ {
			b.Add(l, n)
			want = append(want, l.MessageID(n))
		}
		slices.Sort(want)
		for _, r := range b.listed(Listing{State: "pending"}) {
			ids[slices.IndexFunc([]int{1, 2, 3, 4, 5}, func(n int) bool { return l.MessageID(n) == r.MessageID })+1] = r.Identity
		}
		for _, state := range []string{"pending", AnyState} {
			if got := messageIDs(b.listed(Listing{State: state})); !slices.Equal(got, want) {
				b.Errorf("%s: %v, want %v", state, got, want)
			}
		}
		b.apply(outbox.Completion{Identity: ids[1], Action: outbox.ActionMarkSent},
			outbox.Completion{Identity: ids[2], Action: outbox.ActionFail, Delay: time.Hour, Reason: "the Broker said no"},
			outbox.Completion{Identity: ids[3], Action: outbox.ActionFail, Delay: time.Hour, Reason: "too large"})
		if got := messageIDs(b.listed(Listing{State: "sent"})); !slices.Equal(got, []string{l.MessageID(1)}) {
			b.Errorf("sent: %v", got)
		}
		failed := b.listed(Listing{State: "failed", Limit: 1})
		if got, want := messageIDs(failed), messageIDs([]Row{{Identity: ids[2]}, {Identity: ids[3]}}); !slices.Equal(got, want) {
			b.Fatalf("failed: %v, want %v", got, want)
		}
		for _, r := range failed {
			if !r.Failed || r.Topic != "orders" || l.Has("attempts") && l.Has("failed") != (r.Status == outbox.Failed) {
				b.Errorf("failed: %+v", r)
			}
		}
		if l.Has("reason") {
			if got := messageIDs(b.listed(Listing{State: "failed", Reason: "broker"})); !slices.Equal(got, []string{l.MessageID(2)}) {
				b.Errorf("by reason: %v", got)
			}
		}
		if got := b.listed(Listing{State: "failed", Topic: "other"}); len(got) != 0 {
			b.Errorf("by topic: %+v", got)
		}
		b.findAll(ids[4])
		b.retried(l, ids)
	})
}

// findAll looks for a row by all that it is called.
func (b *bench) findAll(id outbox.Identity) {
	b.Helper()
	found, err := b.store.Find(b.Ctx, b.table.Name(), id.MessageID, false)
	testkit.Must(b, err)
	if len(found.Rows) != 1 || found.Rows[0].Identity != id {
		b.Fatalf("by message id: %+v", found)
	}
	for _, ref := range []string{id.ID, found.Rows[0].Key} {
		again, err := b.store.Find(b.Ctx, b.table.Name(), ref, false)
		testkit.Must(b, err)
		if len(again.Rows) != 1 || again.Rows[0].Identity != id || again.Scan != "" {
			b.Errorf("by %q: %+v", ref, again)
		}
	}
	for _, state := range []string{"pending", AnyState} {
		if got := b.listed(Listing{State: state, Key: found.Rows[0].Key}); len(got) != 1 || got[0].Identity != id {
			b.Errorf("%s by key: %+v", state, got)
		}
	}
	m, fault, err := b.store.Message(b.Ctx, id)
	testkit.Must(b, errors.Join(fault, err))
	if m == nil || !strings.HasPrefix(string(m.Body), "body ") {
		b.Errorf("whole: %+v", m)
	}
	for _, ref := range []string{"none", "' OR 1=1 -- ", "99999999999999999999999", "\x00", strings.Repeat("k", 4000)} {
		if found, err := b.store.Find(b.Ctx, b.table.Name(), ref, false); err != nil || len(found.Rows) != 0 {
			b.Errorf("by %.20q: %+v, %v", ref, found, err)
		}
	}
}

// retried sets a failed row back, and only that.
func (b *bench) retried(l *layouts.Layout, ids map[int]outbox.Identity) {
	b.Helper()
	wrong := ids[3]
	wrong.MessageID += "x"
	n, err := b.store.Retry(b.Ctx, []outbox.Identity{ids[1], ids[2], ids[4], wrong})
	testkit.Must(b, err)
	if n != 1 {
		b.Errorf("%d rows were retried, want one", n)
	}
	b.WantStatus(l, 1, "sent")
	b.WantStatus(l, 2, "pending")
	due := b.due(table.DueQuery{ExpiredClaims: time.Hour})
	if !slices.ContainsFunc(due, func(c outbox.Candidate) bool { return c.Identity == ids[2] && !c.Waiting }) {
		b.Errorf("the row is not due: %+v", due)
	}
	if got := messageIDs(b.listed(Listing{State: "failed"})); l.Has("failed") && !slices.Equal(got, []string{l.MessageID(3)}) {
		b.Errorf("failed: %v", got)
	}
}

// Only what has failed can be discarded, into a table that is there; the row moves whole.
func TestDiscardInEveryLayout(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		for n := 1; n <= 3; n++ {
			b.Add(l, n)
		}
		rows := b.listed(Listing{State: "pending"})
		b.apply(outbox.Completion{Identity: rows[0].Identity, Action: outbox.ActionFail, Delay: time.Hour, Reason: "no"},
			outbox.Completion{Identity: rows[1].Identity, Action: outbox.ActionMarkSent})
		all := []outbox.Identity{rows[0].Identity, rows[1].Identity, rows[2].Identity}
		another := rows[0].Identity // a later row with the same key
		another.MessageID += "x"
		wrong, err := b.store.FailedLog(b.Ctx, b.table.Name())
		testkit.Must(b, err)
		if len(wrong) != 1 || !strings.Contains(wrong[0].Fix, "CREATE TABLE IF NOT EXISTS") {
			b.Errorf("without the table: %+v", wrong)
		}
		if n, err := b.store.Discard(b.Ctx, all); n != 0 || err == nil {
			b.Errorf("without the table: %d, %v", n, err)
		}
		statements, _ := table.MoveDDL(b.Schema, l.Table, table.FailedSuffix)
		for _, statement := range statements {
			testkit.Exec(b, b.DB, statement)
		}
		if wrong, err := b.store.FailedLog(b.Ctx, b.table.Name()); err != nil || len(wrong) != 0 {
			b.Errorf("with the table: %+v, %v", wrong, err)
		}
		if n, err := b.store.Discard(b.Ctx, []outbox.Identity{another}); n != 0 || err != nil {
			b.Errorf("another row: %d, %v", n, err)
		}
		n, err := b.store.Discard(b.Ctx, all)
		testkit.Must(b, err)
		left := messageIDs(b.listed(Listing{State: AnyState}))
		var moved int
		testkit.Must(b, b.DB.QueryRow("SELECT COUNT(*) FROM `"+l.Table+"_failed`").Scan(&moved))
		if n != 1 || moved != 1 || !slices.Equal(left, messageIDs([]Row{rows[1], rows[2]})) {
			b.Errorf("%d discarded, %d in the log, %v left", n, moved, left)
		}
	})
}

// P9: a page of a list reads the rows of its page by the index, in its order, however many rows there are of other states; what would
// read a large table says so and reads nothing.
func TestP9_ListsGoByTheIndex(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.InsertMany(3000)
		b.MostlySent()
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=3 WHERE id BETWEEN 2701 AND 2800")
		testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
		at := table.Cursor{LastTime: "2026-01-01 00:00:00.000", LastID: "2750"}
		for state, status := range map[string]outbox.Status{"failed": outbox.Failed, "sent": outbox.Sent, "pending": outbox.Pending} {
			for _, in := range b.table.listParts(Listing{State: state}) {
				for _, at := range []table.Cursor{{}, at} {
					key, access, extra := b.Explain(b.table.listing(in, Listing{State: state}, at, 50))
					if key != b.table.SweepIndex() || access == "ALL" || access == "index" || strings.Contains(extra, "filesort") {
						b.Errorf("%s (%d), part %d: key %s, type %s, %s", state, status, in.Part, key, access, extra)
					}
				}
			}
		}
		if key, _, extra := b.Explain(b.table.listing(table.Range{Part: table.Whole}, Listing{State: AnyState}, table.Cursor{LastID: "17"}, 50)); key != "PRIMARY" || strings.Contains(extra, "filesort") {
			b.Errorf("any: key %s, %s", key, extra)
		}
		if key, access, extra := b.Explain(b.table.groups(outbox.Failed)); !strings.Contains(key, b.table.SweepIndex()) {
			b.Errorf("breakdown: key %s, type %s, %s", key, access, extra)
		}
	})
}

// The pages of a list come by the index that the table has, in its order.
func TestListsStayOnTheIndexThatIsThere(t *testing.T) {
	for _, layout := range tabletest.IndexLayouts {
		t.Run(layout.Name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, "outbox", func(b *bench) {
				b.InsertMany(3000)
				b.MostlySent()
				b.Reindex(layout)
				testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
				b.listsInOrder(layout.Strategy)
			})
		})
	}
}

func (b *bench) listsInOrder(how table.Strategy) {
	b.Helper()
	for _, state := range []string{"failed", "pending", "sent"} {
		q := Listing{State: state}
		for _, in := range b.table.listParts(q) {
			for _, at := range []table.Cursor{{}, {LastID: b.table.NoID(), LastTime: "2026-01-02 03:04:05.678"}} {
				at.Attempts.Value = "0"
				b.InOrder(fmt.Sprintf("list of %s, %+v behind %+v", state, in, at), b.table.listing(in, q, at, 50), how, at.LastID != "")
			}
		}
	}
}

// A business key that no index begins with is found under each business type: rows of a large table are not read for it, and neither are
// they for the other names of a message.
func TestP9_FindsGoByAnIndex(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Insert(7, "")
		b.many(3000)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET biz_type=CONCAT('type', id % 5) WHERE biz_type='many'")
		testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
		b.store.scanLimit = 0 // whatever reads all rows is refused
		b.store.db.SetMaxOpenConns(1)
		read := func() (n int) {
			var name string
			testkit.Must(b, b.store.db.QueryRow("SHOW SESSION STATUS LIKE 'Handler_read_rnd_next'").Scan(&name, &n))
			return n
		}
		for ref, want := range map[string]string{"key-3": "order:key-3", "order:key-3": "order:key-3", "key-2999": ":key-2999", "3": "order:key-3"} {
			before := read()
			found, err := b.store.Find(b.Ctx, b.table.Name(), ref, false)
			testkit.Must(b, err)
			if !slices.ContainsFunc(messageIDs(found.Rows), func(id string) bool { return strings.HasSuffix(id, want) }) || found.Scan != "" {
				b.Errorf("%q: %v, %q", ref, messageIDs(found.Rows), found.Scan)
			}
			if n := read() - before; n > 1000 { // the status, and the description of the table, are tables themselves
				b.Errorf("%q: %d rows were read in the order of the table", ref, n)
			}
		}
		var index string
		testkit.Must(b, b.DB.QueryRow("SELECT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 'outbox' AND COLUMN_NAME = 'biz_key'", b.Schema).Scan(&index))
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" DROP INDEX "+index)
		found, err := b.store.Find(b.Ctx, b.table.Name(), "key-3", false)
		if err != nil || len(found.Rows) != 0 || !strings.Contains(found.Scan, "INDEX") {
			b.Errorf("without the index: %+v, %v", found, err)
		}
		if found, err := b.store.Find(b.Ctx, b.table.Name(), "key-3", true); err != nil || len(found.Rows) != 2 || found.Scan != "" { // many has one, too
			b.Errorf("allowed: %+v, %v", found, err)
		}
	})
}

// What would read a large table is refused with the index that would help, and read when that is allowed.
func TestListsThatWouldReadEverything(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.store.scanLimit = 2000
		b.many(3000)
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=2 WHERE id > 10")
		testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
		if page, err := b.store.List(b.Ctx, b.table.Name(), Listing{State: "sent", Topic: "none", Limit: 5}); err != nil || !strings.Contains(page.Scan, "rows of") || page.Next != "" {
			b.Errorf("by topic: %+v, %v", page, err)
		}
		if page, err := b.store.List(b.Ctx, b.table.Name(), Listing{State: "sent", Limit: 5}); err != nil || page.Scan != "" || len(page.Rows) != 5 || page.Next == "" {
			b.Errorf("the first rows: %d, %q, %v", len(page.Rows), page.Scan, err)
		}
		if page, err := b.store.List(b.Ctx, b.table.Name(), Listing{State: "sent", Topic: "none", Limit: 5, Scan: true}); err != nil || page.Scan == "" || len(page.Rows) != 0 || page.Next != "" {
			b.Errorf("allowed: %+v, %v", page, err)
		}
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" DROP INDEX "+b.table.SweepIndex())
		b.LoadAsIs(b.Mapping("outbox"))
		b.store.scanLimit = 2000
		page, err := b.store.List(b.Ctx, b.table.Name(), Listing{State: "failed", Limit: 5})
		if err != nil || !strings.Contains(page.Scan, "INDEX") {
			b.Errorf("without an index: %+v, %v", page, err)
		}
	})
}

// A place that comes from outside is checked part by part.
func TestPlacesAreChecked(t *testing.T) {
	on(t, testkit.MariaDB, "outbox", func(b *bench) {
		good := table.Cursor{Range: 1, Attempts: table.AttemptCount{Known: true, Ended: true, Value: "3"}, LastTime: "2026-01-02 03:04:05.678", LastID: "17"}
		if got, err := b.table.parseCursor(cursorText(good)); err != nil || got != good {
			b.Errorf("%+v, %v", got, err)
		}
		for _, bad := range []table.Cursor{
			{Range: 2}, {Range: -1}, {LastID: "1 OR 1=1"}, {LastTime: "yesterday"}, {Attempts: table.AttemptCount{Known: true, Value: "0 OR 1=1"}},
		} {
			if got, err := b.table.parseCursor(cursorText(bad)); !errors.Is(err, ErrCursor) {
				b.Errorf("%+v is taken as %+v", bad, got)
			}
		}
		for _, text := range []string{"!", "bm8", "eyJwIjoxZTl9"} {
			if got, err := b.table.parseCursor(text); !errors.Is(err, ErrCursor) {
				b.Errorf("%q is taken as %+v", text, got)
			}
		}
	})
}

// The breakdown counts what waits by topic and what was refused by reason.
func TestBreakdown(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Insert(3, "created_at=NOW(3) - INTERVAL 1 HOUR")
		b.Insert(2, "status=3, retry_count=5, fail_reason='too large'")
		b.Insert(1, "status=3, retry_count=5, fail_reason='no such topic'")
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET topic='others' WHERE id=1")
		got, err := b.store.Breakdown(b.Ctx, b.table.Name())
		testkit.Must(b, err)
		if fmt.Sprint(got.Reasons) != "[{too large 2} {no such topic 1}]" || got.Sampled || got.Looked != [2]int64{3, 3} {
			b.Errorf("%+v", got)
		}
		if len(got.Topics) != 2 || got.Topics[0].Name != "orders" || got.Topics[0].Pending != 2 || got.Topics[0].Failed != 3 || got.Topics[1].Oldest < time.Hour {
			b.Errorf("%+v", got.Topics)
		}
	})
}
