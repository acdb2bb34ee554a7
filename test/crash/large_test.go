package crash

import (
	"context"
	"database/sql"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A transaction far larger than the window in flight, so that the reader blocks in the middle of it (A15, A61): after a kill
// there, its sent rows are distinguished one by one, because the checkpoint is still before all of them. The server's time-out
// for a blocked reader is short here.
func TestA15_A61_KillInTheMiddleOfALargeTransaction(t *testing.T) {
	const statements, rowsOfOne = 30, 300
	beds(t, func(t *testing.T, b *bed) {
		testkit.Exec(t, b.db.Root(), "SET GLOBAL net_write_timeout = 1")
		t.Cleanup(func() { testkit.Exec(t, b.db.Root(), "SET GLOBAL net_write_timeout = 60") })
		at := b.relay.StartUntil(t, "before-journal", 2)
		b.relay.AwaitConnected(t)
		before := b.account(t)
		testkit.Must(t, b.writer.In(t.Context(), b.sql, true, func(ctx context.Context, tx *sql.Tx) (all []relay.Row, err error) {
			for range statements {
				rows := b.writer.Rows(rowsOfOne)
				if err := b.table.Insert(ctx, tx, rows...); err != nil {
					return nil, err
				}
				all = append(all, rows...)
			}
			return all, nil
		}))
		b.relay.Await(t, at)
		known := b.kill(t)
		if len(known) == 0 || len(known) == statements*rowsOfOne {
			t.Errorf("%d of %d rows were known at the kill: it was not in the middle", len(known), statements*rowsOfOne)
		}
		account := b.afterKill(t)
		b.onlyUnknown(t, before, account, known)
		t.Logf("%d of %d known, %d sent again", len(known), statements*rowsOfOne, account.Duplicates())
	}, "pipeline: {max_in_flight: 200}")
}
