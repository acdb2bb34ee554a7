package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// A49: every layout, made in a database whose default is another character set, with keys and ids of that set.
func TestA49_EveryLayoutInEveryCharacterSet(t *testing.T) {
	for _, set := range layouts.Charsets() {
		for _, l := range layouts.All() {
			if testing.Short() && l.Name != "B" && l.Name != "D" {
				continue
			}
			for _, flavor := range testkit.Flavors() {
				t.Run(fmt.Sprint(set.Name, "/", l.Name, "/", flavor), func(t *testing.T) {
					l := l.In(set)
					everyLayout(over(inCharset(t, flavor, set, l)), l)
				})
			}
		}
	}
}

// inCharset is the table of a layout in a database of a character set.
func inCharset(t *testing.T, flavor testkit.Flavor, set layouts.Charset, l *layouts.Layout) *tabletest.Bench {
	b := tabletest.New(t, flavor)
	testkit.Exec(b, b.DB, "ALTER DATABASE "+b.Schema+" CHARACTER SET "+set.Name)
	testkit.Exec(b, b.DB, l.Create())
	b.Quoted = "`" + b.Schema + "`.`" + l.Table + "`"
	b.LoadAsIs(tabletest.MappingOf(b, l))
	return b
}

// onCharsets runs a test on a table with a text key, in every character set on each server, with 1,000 rows.
func onCharsets(t *testing.T, test func(b *bench, l *layouts.Layout, set layouts.Charset)) {
	for _, set := range layouts.Charsets() {
		for _, flavor := range testkit.Flavors() {
			t.Run(fmt.Sprint(set.Name, "/", flavor), func(t *testing.T) {
				l := layouts.All()[4].In(set)
				b := over(inCharset(t, flavor, set, l))
				var rows []string
				for n := range 1000 {
					rows = append(rows, fmt.Sprintf("('%s', 'orders', 'x', 'PENDING')", l.MessageID(n)))
				}
				testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (message_id, event_type, payload, status) VALUES "+strings.Join(rows, ", "))
				testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
				test(b, l, set)
			})
		}
	}
}

// A49: statements that name rows by a text key find them by the primary key, in every character set.
func TestA49_StatementsUseTheKey(t *testing.T) {
	onCharsets(t, func(b *bench, l *layouts.Layout, set layouts.Charset) {
		var ids []outbox.Identity
		var sent []outbox.Completion
		for n := range 50 {
			id := outbox.Identity{Table: b.table.Name(), ID: l.MessageID(n), MessageID: l.MessageID(n)}
			ids, sent = append(ids, id), append(sent, outbox.Completion{Identity: id, Action: outbox.ActionFail, Reason: "no " + fmt.Sprint(n)})
		}
		state := b.table.selectState()
		b.table.FromKeys(state, len(ids), func(i int) string { return ids[i].ID })
		whole := b.table.SelectWhole("1")
		whole.Add(" WHERE ")
		b.table.IDIn(whole, len(ids), func(i int) string { return ids[i].ID })
		for name, s := range map[string]*table.Statement{
			"look-up": state, "read back": whole, "untouched": b.table.countUntouched(ids), "fail": b.table.update(outbox.ActionFail, sent),
		} {
			if key, access, extra := b.Explain(s); !strings.HasSuffix(key, "PRIMARY") || !strings.HasSuffix(access, "range") {
				b.Errorf("%s: key %q, access %q, %s", name, key, access, extra)
			}
		}
		if untouched, err := b.store.Untouched(b.Ctx, ids); err != nil || !untouched {
			b.Errorf("untouched: %v, %v", untouched, err)
		}
		if states, err := b.store.States(b.Ctx, ids); err != nil || len(states) != len(ids) {
			b.Errorf("%d states of %d, %v", len(states), len(ids), err)
		}
		b.apply(sent...)
		if n := b.count("status = 'FAILED' AND error_message LIKE 'no %'"); n != len(ids) {
			b.Errorf("%d rows of %d are FAILED", n, len(ids))
		}
	})
}

func (b *bench) count(where string) (n int) {
	b.Helper()
	testkit.Must(b, b.DB.QueryRow("SELECT COUNT(*) FROM "+b.Quoted+" WHERE "+where).Scan(&n))
	return n
}

// A49: what is written fits into its column, a question mark for what its set does not have; a key that the set cannot hold names no row, and harms none.
func TestA49_CharactersThatTheSetDoesNotHave(t *testing.T) {
	onCharsets(t, func(b *bench, l *layouts.Layout, set layouts.Charset) {
		fail := func(id, reason string) outbox.Completion {
			return outbox.Completion{Identity: outbox.Identity{Table: b.table.Name(), ID: id, MessageID: id}, Action: outbox.ActionFail, Reason: reason}
		}
		foreign := l.MessageID(1) + set.Lacks
		refused := b.apply(fail(l.MessageID(1), "no "+set.Text+set.Lacks+"!"), fail(foreign, "no"), fail(l.MessageID(2), "plain"))
		if len(refused) != 1 || !strings.Contains(refused[0].Reason, strings.TrimSuffix(set.Name, "mb3")) {
			b.Errorf("refused %+v", refused)
		}
		for n, reason := range map[int]string{1: "no " + set.Text + "?!", 2: "plain"} {
			if !b.Shows(l, n, "status = 'FAILED' AND error_message = ?", reason) {
				b.Errorf("row %d is not FAILED with %q", n, reason)
			}
		}
		ids := []outbox.Identity{fail(l.MessageID(3), "").Identity, fail(foreign, "").Identity, fail(l.MessageID(4), "").Identity}
		states, err := b.store.States(b.Ctx, ids)
		testkit.Must(b, err)
		if found := slices.IndexFunc(states, func(c outbox.Candidate) bool { return c.Identity == ids[2] }); len(states) != 3 || found < 0 {
			b.Errorf("states %+v", states)
		}
		r := b.query()
		for _, ref := range []string{l.MessageID(1), foreign, set.Lacks} {
			found, err := r.Find(b.Ctx, b.table.Name(), ref, true)
			if err != nil || (len(found.Rows) == 1) != (ref == l.MessageID(1)) {
				b.Errorf("found %+v of %q, %v", found, ref, err)
			}
		}
		has, err := r.HasMessages(b.Ctx, []string{foreign, l.MessageID(5), set.Lacks})
		if err != nil || len(has) != 1 || !has[l.MessageID(5)] {
			b.Errorf("has %v, %v", has, err)
		}
		page, err := r.List(b.Ctx, b.table.Name(), query.Listing{State: "failed", Limit: 10})
		if err != nil || len(page.Rows) != 2 || !slices.ContainsFunc(page.Rows, func(row query.Row) bool { return row.Reason == "no "+set.Text+"?!" }) {
			b.Errorf("listed %+v, %v", page, err)
		}
	})
}

// A49: rows of another character set move to an archive made for them, and leave the table.
func TestA49_Archive(t *testing.T) {
	onCharsets(t, func(b *bench, l *layouts.Layout, set layouts.Charset) {
		statements, _ := table.MoveDDL(b.Schema, l.Table, table.ArchiveSuffix)
		for _, s := range statements {
			testkit.Exec(b, b.DB, s)
		}
		testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET payload = ?, status = 'SENT', sent_at = NOW() - INTERVAL 2 DAY, created_at = NOW() - INTERVAL 2 DAY WHERE "+l.Where(7), set.Text)
		of := []table.Expiry{{Status: outbox.Sent, Age: 24 * time.Hour, Into: table.ArchiveSuffix}}
		findings, _, err := CheckRetention(b.Ctx, b.Writer, b.Table, of)
		testkit.Must(b, err)
		for _, f := range findings {
			if f.Fix != "" {
				b.Errorf("finding %+v", f)
			}
		}
		var expired []string
		for after, done := "", false; !done; {
			page, err := b.store.Expired(b.Ctx, b.table.Name(), after, of)
			testkit.Must(b, err)
			expired, after, done = append(expired, page.IDs[0]...), page.Next, page.Done
		}
		if !slices.Equal(expired, []string{l.MessageID(7)}) {
			b.Fatalf("expired %q", expired)
		}
		left, err := b.store.Expire(b.Ctx, b.table.Name(), of[0], expired)
		testkit.Must(b, err)
		var moved string
		testkit.Must(b, b.DB.QueryRow("SELECT payload FROM "+l.Table+table.ArchiveSuffix+" WHERE "+l.Where(7)).Scan(&moved))
		if left.Rows != 1 || moved != set.Text || b.count(l.Where(7)) != 0 {
			b.Errorf("moved %+v, with %q", left, moved)
		}
	})
}

// A49: a row whose texts are none in their set is FAILED with its column; where that is the message id it is refused, if the server refuses to compare it.
func TestA49_TextsThatAreNone(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			l := layouts.All()[0].In(layouts.Charsets()[1])
			b := over(inCharset(t, flavor, layouts.Charsets()[1], l))
			for n := 1; n <= 5; n++ {
				b.Add(l, n)
			}
			testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET message_body = _gbk x'6162A2A0' WHERE "+l.Where(2))
			testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET biz_key = _gbk x'6162A2A0' WHERE "+l.Where(4))
			due := b.due(table.DueQuery{})
			stamp, err := b.store.Claim(b.Ctx, due)
			testkit.Must(b, err)
			var ids []outbox.Identity
			for _, c := range due {
				ids = append(ids, c.Identity)
			}
			messages, faulty, err := b.store.ReadBack(b.Ctx, stamp, ids)
			testkit.Must(b, err)
			b.apply(faulty...)
			if len(due) != 5 || len(messages) != 3 {
				b.Fatalf("%d due, %d messages", len(due), len(messages))
			}
			if !b.Shows(l, 2, "status = 3 AND fail_reason LIKE '%column message_body (body): its bytes from offset 2 on are no text in gbk'") {
				b.Errorf("row 2: %+v", faulty)
			}
			last, refused := b.store.Refused(b.table.Name(), time.Minute)
			failed := b.Shows(l, 4, "status = 3 AND fail_reason LIKE '%column biz_key (key): its bytes from offset 2 on are no text in gbk'")
			if mysql := flavor == testkit.MySQL; failed != mysql || (refused == 0) != mysql {
				b.Errorf("row 4: %+v, refused %d: %+v", faulty, refused, last)
			}
		})
	}
}

// A49: a row whose primary key is no text is noted as refused, and a sweep in pages finds each other row once.
func TestA49_KeysThatAreNone(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			l := layouts.All()[4].In(layouts.Charsets()[1])
			b := over(inCharset(t, flavor, layouts.Charsets()[1], l))
			for n := 1; n <= 5; n++ {
				b.Add(l, n)
			}
			for _, key := range []string{"A2A0", "A2A061", "30A2A0"} {
				testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (message_id, event_type, payload, status) VALUES (_gbk x'"+key+"', 'orders', 'x', 'PENDING')")
			}
			testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" (message_id, event_type, payload, status) VALUES ('?', 'orders', 'x', 'PENDING')")
			for _, limit := range []int{1, 2, 100} {
				seen := map[string]int{}
				for _, c := range b.due(table.DueQuery{Limit: limit}) {
					if !c.Waiting {
						seen[c.ID]++
					}
				}
				if len(seen) != 6 || seen["?"] != 1 || seen[l.MessageID(1)] != 1 {
					b.Errorf("in pages of %d: %v", limit, seen)
				}
			}
			if last, n := b.store.Refused(b.table.Name(), time.Minute); n != 3 || !strings.Contains(last.Reason, "its bytes are no text in gbk") {
				b.Errorf("refused %d: %+v", n, last)
			}
		})
	}
}
