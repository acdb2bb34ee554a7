package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// In every layout rows are untouched until one of them is sent, refused, renamed, gone or asked for under another message id.
func TestUntouchedInEveryLayout(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		const rows = 5
		for n := 1; n <= rows; n++ {
			b.Add(l, n)
		}
		var ids []outbox.Identity
		for _, c := range b.due(table.DueQuery{}) {
			ids = append(ids, c.Identity)
		}
		if len(ids) != rows {
			b.Fatalf("%d rows", len(ids))
		}
		want := func(want bool, ids []outbox.Identity, what string) {
			b.Helper()
			if got, err := b.store.Untouched(b.Ctx, ids); err != nil || got != want {
				b.Errorf("%s: untouched %v, %v", what, got, err)
			}
		}
		want(true, ids, "as inserted")
		want(true, nil, "none")
		other := slices.Clone(ids)
		other[1].MessageID = ids[2].MessageID
		want(false, other, "the message id of another row")
		other[1].MessageID = strings.ToUpper(ids[1].MessageID) + " "
		want(false, other, "a message id that a collation takes for the row's")
		want(false, append(slices.Clone(ids), ids[0]), "a row twice")
		other[1] = outbox.Identity{Table: ids[1].Table, ID: strings.Repeat("7", len(ids[1].ID)), MessageID: ids[1].MessageID}
		want(false, other, "a row that is not there")

		for i, action := range []outbox.Action{outbox.ActionMarkSent, outbox.ActionRetry, outbox.ActionFail} {
			b.apply(outbox.Completion{Identity: ids[i], Action: action, Delay: time.Hour, Reason: "no"})
			want(false, ids[i:], fmt.Sprint("after action ", action))
			want(true, ids[i+1:], fmt.Sprint("all but the row after action ", action))
		}
		for name, code := range l.Codes {
			testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET "+l.Status+" = ? WHERE "+l.Where(rows), code)
			if i := slices.IndexFunc(ids, func(id outbox.Identity) bool { return id.MessageID == l.MessageID(rows) }); i >= 3 {
				want(name == "pending", ids[i:i+1], name)
			}
		}
	})
}

// A row that waits for its time, that was refused and is due again, or whose status only looks like PENDING is not untouched.
func TestUntouchedRowsAreDueAndPending(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		for set, want := range map[string]bool{
			"next_retry_time = NOW(3) - INTERVAL 1 SECOND":                  true,
			"next_retry_time = NOW(3) + INTERVAL 1 HOUR":                    false,
			"next_retry_time = NOW(3) - INTERVAL 1 SECOND, retry_count = 1": false,
			"status = 1": false,
			"status = 7": false,
		} {
			ids := b.Insert(2, set)
			if got, err := b.store.Untouched(b.Ctx, ids); err != nil || got != want {
				b.Errorf("%s: untouched %v, %v", set, got, err)
			}
		}
		ids := b.Insert(1, "")
		ids[0].ID = "no number"
		if got, err := b.store.Untouched(b.Ctx, ids); err != nil || got {
			b.Errorf("what is no key: untouched %v, %v", got, err)
		}
		first := b.InsertMany(table.MaxRows + 1) // in two statements
		if got, err := b.store.Untouched(b.Ctx, first); err != nil || !got {
			b.Errorf("untouched %v, %v", got, err)
		}
		b.apply(outbox.Completion{Identity: first[table.MaxRows], Action: outbox.ActionMarkSent})
		if got, err := b.store.Untouched(b.Ctx, first); err != nil || got {
			b.Errorf("untouched %v, %v", got, err)
		}
	})
}

// A status that the column's collation takes for PENDING is left to the look-up row by row.
func TestUntouchedComparesTheStatusByItsBytes(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			b := newBench(t, flavor)
			b.Create("message-state")
			testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY state VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL")
			b.LoadAsIs(b.Mapping("message-state"))
			for i, state := range []string{"pending", "Pending", "pending ", "pénding"} {
				key := fmt.Sprint("k", i)
				id, err := testkit.Exec(b, b.DB, "INSERT INTO "+b.Quoted+" SET message_type='o', message_key=?, topic='t', message_body='', state=?", key, state).LastInsertId()
				testkit.Must(b, err)
				row := outbox.Identity{Table: b.table.Name(), ID: fmt.Sprint(id), MessageID: "o:" + key}
				if got, err := b.store.Untouched(b.Ctx, []outbox.Identity{row}); err != nil || got != (i == 0) {
					b.Errorf("%q: untouched %v, %v", state, got, err)
				}
			}
		})
	}
}
