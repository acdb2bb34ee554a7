package table

import (
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
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

// To ask for rows as a whole costs next to nothing for each of them.
func TestUntouchedAllocatesLittle(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.insertMany(maxRows)
		n := testing.AllocsPerRun(3, func() {
			if untouched, err := b.store.Untouched(b.ctx, ids); err != nil || !untouched {
				b.Errorf("untouched %v, %v", untouched, err)
			}
		})
		if each := n / maxRows; each > 0.5 {
			b.Errorf("%.2f allocations for a row", each)
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

// A sample of a table is one statement and one more for its newest row: a relay has a sample made of each of its tables every few seconds.
func TestASampleTakesFewStatements(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.insertMany(10)
		b.store.db.SetMaxOpenConns(1) // whose own counter is read
		selects := func() (n int) {
			b.Helper()
			var name string
			testkit.Must(b, b.store.db.QueryRow("SHOW SESSION STATUS LIKE 'Com_select'").Scan(&name, &n))
			return n
		}
		zone := selects()
		_, _, err := server.Zone(b.ctx, b.store.db)
		testkit.Must(b, err)
		before := selects()
		_, err = b.store.Counts(b.ctx)
		testkit.Must(b, err)
		if n := selects() - before - (before - zone); n != 2 {
			b.Errorf("%d statements", n)
		}
	})
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
