package store

import (
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// What a row costs that is looked up: the database's driver makes a value of each column, and little comes on top.
func TestStatesAllocateLittle(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(table.MaxRows)
		n := testing.AllocsPerRun(3, func() {
			if found, err := b.store.States(b.Ctx, ids); err != nil || len(found) != len(ids) {
				b.Errorf("%d of %d rows, %v", len(found), len(ids), err)
			}
		})
		if each := n / table.MaxRows; each > 6 {
			b.Errorf("%.1f allocations for a row", each)
		} else {
			b.Logf("%.1f allocations for a row", each)
		}
	})
}

// To ask for rows as a whole costs next to nothing for each of them.
func TestUntouchedAllocatesLittle(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(table.MaxRows)
		n := testing.AllocsPerRun(3, func() {
			if untouched, err := b.store.Untouched(b.Ctx, ids); err != nil || !untouched {
				b.Errorf("untouched %v, %v", untouched, err)
			}
		})
		if each := n / table.MaxRows; each > 0.5 {
			b.Errorf("%.2f allocations for a row", each)
		}
	})
}

// A status update names each row in its text: no argument has to be made for it.
func TestStatementsAllocateLittle(t *testing.T) {
	on(t, testkit.MariaDB, "outbox", func(b *bench) {
		rows := sentRows(table.MaxRows)
		n := testing.AllocsPerRun(10, func() { b.table.update(outbox.ActionMarkSent, rows) })
		if each := n / table.MaxRows; each > 0.1 {
			b.Errorf("%.2f allocations for a row", each)
		}
	})
}

func sentRows(n int) []outbox.Completion {
	rows := make([]outbox.Completion, n)
	for i := range rows {
		rows[i] = outbox.Completion{Identity: identityOf(i + 1_000_000), Action: outbox.ActionMarkSent}
	}
	return rows
}

func identityOf(i int) outbox.Identity {
	return outbox.Identity{Table: "shop.outbox", ID: fmt.Sprint(i), MessageID: fmt.Sprint("order:k", i)}
}
