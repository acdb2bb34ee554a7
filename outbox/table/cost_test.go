package table

import (
	"testing"
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
