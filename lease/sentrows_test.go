package lease

import (
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// One relay reads the rows that another one left, for its own tables only, whatever bytes keys and message ids have.
func TestG32_SentRowsAreHandedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx := t.Context()
		for n, holder := range []string{"one", "two"} {
			testkit.Exec(t, table.db, "INSERT INTO "+table.name+" (epoch, holder, process, host, table_names, gtid_set) VALUES (?, ?, '', '', '[]', '')", n+1, holder)
		}
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
