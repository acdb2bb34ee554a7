package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// hold makes a row of each holder, for the tables of the tests.
func hold(t *testing.T, table *Table, holders ...string) {
	t.Helper()
	for n, holder := range holders {
		testkit.Exec(t, table.db, "INSERT INTO "+table.name+" (epoch, holder, process, host, table_names, gtid_set) VALUES (?, ?, '', '', ?, '')",
			n+1, holder, `["shop.a", "shop.b"]`)
	}
}

// A relay that takes over finds when the ones before were alive, of its own tables, until they end in order or rows are set back.
func TestSignsOfLifeAreHandedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx := t.Context()
		hold(t, table, "one", "two", "three")
		at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 5e6, time.UTC) }
		leave := func(holder string, life *outbox.Life) {
			testkit.Must(t, table.Leave(ctx, holder, SentRows{Life: life}))
		}
		left := func(tables ...string) *outbox.Life {
			t.Helper()
			left, err := table.Left(ctx, "three", tables)
			testkit.Must(t, err)
			return left.Life
		}
		leave("one", &outbox.Life{ClaimsAt: at(0), SettledAt: at(1), AliveAt: at(3)})
		if got := left("shop.a"); got == nil || *got != (outbox.Life{ClaimsAt: at(0), SettledAt: at(1), AliveAt: at(3)}) {
			t.Errorf("one relay: %+v", got)
		}
		leave("two", &outbox.Life{ClaimsAt: at(1), SettledAt: at(2), AliveAt: at(4)})
		if got := left("shop.b"); got == nil || *got != (outbox.Life{ClaimsAt: at(0), SettledAt: at(1), AliveAt: at(4)}) {
			t.Errorf("two relays: %+v", got)
		}
		if got := left("shop.c"); got != nil {
			t.Errorf("other tables: %+v", got)
		}
		leave("one", nil)
		if got := left("shop.a"); got == nil || *got != (outbox.Life{ClaimsAt: at(1), SettledAt: at(2), AliveAt: at(4)}) {
			t.Errorf("after one has ended: %+v", got)
		}
		row := outbox.Identity{Table: "shop.a", ID: "1", MessageID: "m"}
		testkit.Must(t, table.Leave(ctx, "one", SentRows{Rows: []outbox.Identity{row}, Life: &outbox.Life{SettledAt: at(1), AliveAt: at(1)}}))
		for range 2 {
			testkit.Must(t, table.Forget(ctx))
		}
		if all, err := table.Left(ctx, "three", []string{"shop.a"}); err != nil || all.Life != nil || !slices.Equal(all.Rows, []outbox.Identity{row}) {
			t.Errorf("after rows were set back: %+v, %v", all, err)
		}
		testkit.Exec(t, table.db, "ALTER TABLE "+table.name+" DROP COLUMN sent_rows")
		testkit.Must(t, table.Forget(ctx))
		testkit.Exec(t, table.db, "DROP TABLE "+table.name)
		testkit.Must(t, table.Forget(ctx))
	})
}

// An account that may not write to the lease table has no relay that takes over, so there is nothing to forget: its rows can be set back. One that
// may only read it is no better.
func TestAnAccountWithoutTheRightHasNothingToForget(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			d := testkit.SharedDatabase(t, flavor)
			schema := d.CreateSchema(t)
			ddl, err := migrations.DDL("lease", schema+".lease")
			testkit.Must(t, err)
			testkit.Exec(t, d.Root(), ddl)
			hold(t, NewTable(d.Root(), schema+".lease"), "one")
			testkit.Exec(t, d.Root(), "CREATE TABLE "+schema+".t (id INT)")
			for name, grants := range map[string][]string{"nothing": {"SELECT ON " + schema + ".t"}, "read": {"SELECT ON " + schema + ".lease"}} {
				account := name + "_" + schema
				testkit.Must(t, d.CreateUser(t.Context(), account, "x", grants...))
				db, err := d.Open(account, "x", schema)
				testkit.Must(t, err)
				if err := NewTable(db, schema+".lease").Forget(t.Context()); err != nil {
					t.Errorf("with the right to %s: %v", name, err)
				}
				testkit.Must(t, db.Close())
			}
		})
	}
}

// One relay reads the rows that another one left, for its own tables only, whatever bytes keys and message ids have.
func TestG32_SentRowsAreHandedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx := t.Context()
		hold(t, table, "one", "two")
		rows := []outbox.Identity{
			{Table: "shop.a", ID: "17", MessageID: "order:17"}, {Table: "shop.a", ID: "\xff\x00", MessageID: "\xfe'\"ü"}, {Table: "shop.b", ID: "1", MessageID: "m"},
		}
		testkit.Must(t, table.Leave(ctx, "one", SentRows{Rows: rows, More: 3}))
		for _, c := range []struct {
			holder string
			tables []string
			want   []outbox.Identity
			more   int
		}{{"two", []string{"shop.a"}, rows[:2], 3}, {"two", []string{"shop.a", "shop.b"}, rows, 3}, {"one", []string{"shop.a"}, nil, 0}} {
			left, err := table.Left(ctx, c.holder, c.tables)
			testkit.Must(t, err)
			if !slices.Equal(left.Rows, c.want) || left.More != c.more {
				t.Errorf("%s finds %+v for %v", c.holder, left, c.tables)
			}
		}
		testkit.Must(t, table.Leave(ctx, "one", SentRows{}))
		if left, err := table.Left(ctx, "two", []string{"shop.a"}); err != nil || left.Rows != nil || left.More != 0 {
			t.Errorf("afterwards %+v, %v", left, err)
		}
	})
}
