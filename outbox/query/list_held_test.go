package query

import (
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/outbox/table/tabletest"
)

// Rows with a code that the configuration does not name are listed as held, and PENDING rows that are due later as delayed: page by page,
// each once, by whatever index the table has.
func TestG18_G40_HeldAndDelayedRowsAreListed(t *testing.T) {
	for _, layout := range tabletest.IndexLayouts {
		if layout.NoDue || layout.Key != "" {
			continue
		}
		t.Run(layout.Name, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				b.Insert(2, "")
				b.Insert(2, "status=2")
				testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY status TINYINT NULL DEFAULT 0")
				b.Reindex(layout)
				var held []outbox.Identity
				for _, set := range []string{"status=9", "status=7", "status=-1, retry_count=3", "status=NULL", "status=9, next_retry_time=NULL, retry_count=2"} {
					held = append(held, b.Insert(3, set)...)
				}
				delayed := append(b.Insert(3, "next_retry_time=NOW() + INTERVAL 1 HOUR"), b.Insert(2, "next_retry_time=NOW() + INTERVAL 2 HOUR, retry_count=1")...)
				b.wantListed(Listing{State: table.HeldState}, held)
				b.wantListed(Listing{State: table.DelayedState}, delayed)
				b.wantListed(Listing{State: table.HeldState, Type: "nothing"}, nil)
				b.wantListed(Listing{State: table.DelayedState, Type: "order"}, delayed)
				if got := b.listed(Listing{State: table.HeldState, Key: "key-5"}); len(got) != 1 || got[0].Identity != held[0] || got[0].Code != "9" || got[0].State != "" {
					b.Errorf("by key: %+v", got)
				}
			})
		})
	}
}

// The codes of a text column are words: those that no code names are listed, an empty one too.
func TestG18_HeldWordsAreListed(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Insert(1, "")
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY status VARCHAR(20) NOT NULL DEFAULT '0'")
		m := b.Mapping("outbox")
		m.SetCode("suspended", "SUSPENDED")
		b.LoadAsIs(m)
		held := append(b.Insert(3, "status='待发送'"), b.Insert(2, "status=''")...)
		held = append(held, b.Insert(2, `status='it\'s'`)...)
		named := b.Insert(2, "status='SUSPENDED'")
		b.wantListed(Listing{State: table.HeldState}, held)
		b.wantListed(Listing{State: "suspended"}, named)
	})
}

func (b *bench) wantListed(q Listing, want []outbox.Identity) {
	b.Helper()
	for _, q.Limit = range []int{1, 2, 3, 100} {
		var got []outbox.Identity
		for _, r := range b.listed(q) {
			got = append(got, r.Identity)
		}
		byID := func(a, b outbox.Identity) int { return strings.Compare(a.ID, b.ID) }
		slices.SortFunc(got, byID)
		sorted := slices.SortedFunc(slices.Values(want), byID)
		if !slices.Equal(got, sorted) {
			b.Errorf("%+v: %v, want %v", q, got, sorted)
		}
	}
}

// A place that comes back from outside names a code that the column can have, and nothing else reaches the statement.
func TestG40_PlacesOfHeldRowsAreChecked(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.Insert(3, "status=9")
		for _, code := range []table.Code{"=9 OR 1=1", "=x", "9", "N", table.Code("=" + strings.Repeat("1", maxReason+1))} {
			if _, err := b.store.List(b.Ctx, b.table.Name(), Listing{State: table.HeldState, Limit: 1, After: cursorText(table.Cursor{Code: code})}); err == nil {
				b.Errorf("%.20q was taken", code)
			}
		}
	})
}
