package table

import (
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// What a row costs that is looked up: the database's driver makes a value of each column, and little comes on top.
func TestStatesAllocateLittle(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.insertMany(maxRows)
		n := testing.AllocsPerRun(3, func() {
			if found, err := b.store.States(b.ctx, ids); err != nil || len(found) != len(ids) {
				b.Errorf("%d of %d rows, %v", len(found), len(ids), err)
			}
		})
		if each := n / maxRows; each > 6 {
			b.Errorf("%.1f allocations for a row", each)
		} else {
			b.Logf("%.1f allocations for a row", each)
		}
	})
}

// A status update names each row in its text: no argument has to be made for it.
func TestStatementsAllocateLittle(t *testing.T) {
	table := bound(t, "outbox", nil)
	rows := sentRows(maxRows)
	n := testing.AllocsPerRun(10, func() { table.update(outbox.ActionMarkSent, rows) })
	if each := n / maxRows; each > 0.1 {
		t.Errorf("%.2f allocations for a row", each)
	}
}

func BenchmarkUpdateStatement(b *testing.B) {
	table := bound(b, "outbox", nil)
	rows := sentRows(maxRows)
	b.ReportAllocs()
	for b.Loop() {
		table.update(outbox.ActionMarkSent, rows)
	}
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
