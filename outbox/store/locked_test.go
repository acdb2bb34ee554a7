package store

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// D07: a row that another session has locked is returned as not written. All other rows of its batch are written meanwhile, and
// the row itself after the lock is released.
func TestD07_LockedRowIsHandedBack(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(300)
		gone := outbox.Identity{Table: b.table.Name(), ID: "999999", MessageID: "order:gone"}
		tx := b.lock(ids[150])
		var batch []outbox.Completion
		for _, id := range append(ids, gone) {
			batch = append(batch, outbox.Completion{Identity: id, Action: outbox.ActionMarkSent, RetryCount: 0})
		}
		left, err := b.store.Apply(b.Ctx, batch)
		testkit.Must(b, err)
		if len(left) != 2 || !left[0].Retryable || !left[1].Retryable || left[0].Identity != ids[150] || left[1].Identity != gone {
			b.Fatalf("handed back: %+v", left)
		}
		for _, n := range []int{0, 149, 151, 299} {
			b.Want(ids[n], "2", "status")
		}
		testkit.Must(b, tx.Rollback())
		if left, err = b.store.Apply(b.Ctx, []outbox.Completion{left[0].Completion, left[1].Completion}); err != nil || len(left) > 0 {
			b.Fatalf("afterwards: %+v, %v", left, err)
		}
		b.Want(ids[150], "2", "status")
	})
}

// D07: a sweep claims what is not locked.
func TestD07_ClaimLeavesLockedRowsOut(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(20)
		tx := b.lock(ids[7])
		defer func() { testkit.Must(b, tx.Rollback()) }()
		var candidates []outbox.Candidate
		for _, id := range ids {
			candidates = append(candidates, outbox.Candidate{Identity: id, Status: outbox.Pending})
		}
		stamp, err := b.store.Claim(b.Ctx, candidates)
		testkit.Must(b, err)
		messages, _, err := b.store.ReadBack(b.Ctx, stamp, ids)
		testkit.Must(b, err)
		if len(messages) != len(ids)-1 || slices.ContainsFunc(messages, func(m *outbox.Message) bool { return m.Identity == ids[7] }) {
			b.Fatalf("%d of %d rows were claimed", len(messages), len(ids))
		}
	})
}

// lock holds the lock of a row until the transaction ends.
func (b *bench) lock(id outbox.Identity) *sql.Tx {
	b.Helper()
	tx, err := b.DB.Begin()
	testkit.Must(b, err)
	_, err = tx.Exec("SELECT id FROM " + b.Quoted + " WHERE id = " + id.ID + " FOR UPDATE")
	testkit.Must(b, err)
	return tx
}

// D07: a lock on a row that a statement does not name is not in its way, also where the statement names nearly all rows of the table.
func TestD07_LockOnAnotherRowIsNotMet(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		for _, n := range []int{1, 3, 20, 300} {
			ids := b.InsertMany(n + 1)
			tx := b.lock(ids[n])
			batch := markSent(ids[:n])
			before := b.lockWaits()
			left, err := b.store.Apply(b.Ctx, batch)
			testkit.Must(b, err)
			if waits := b.lockWaits() - before; len(left) > 0 || waits > 0 {
				b.Errorf("%d rows: %d handed back, %d waits for a lock", n, len(left), waits)
			}
			testkit.Must(b, tx.Rollback())
			testkit.Exec(b, b.DB, "DELETE FROM "+b.Quoted)
		}
	})
}

// D07: where most rows of a batch are locked the free ones are written. Without SKIP LOCKED they may be handed back with the others, after few waits.
func TestD07_ManyLockedRows(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(60)
		tx := b.lock(ids[0])
		for _, id := range ids[1:50] {
			_, err := tx.Exec("SELECT id FROM " + b.Quoted + " WHERE id = " + id.ID + " FOR UPDATE")
			testkit.Must(b, err)
		}
		batch := markSent(ids)
		before, free := b.lockWaits(), 10
		left, err := b.store.Apply(b.Ctx, batch)
		testkit.Must(b, err)
		if b.Server.Before(8, 0) { // three locked rows are taken for all: each wait is a second
			free = 0
			if waits := b.lockWaits() - before; waits > 12 {
				b.Errorf("%d waits for a lock", waits)
			}
		}
		if len(left) != 60-free || slices.ContainsFunc(left, func(u outbox.WriteError) bool { return !u.Retryable }) {
			b.Errorf("%d rows were handed back", len(left))
		}
		for _, id := range ids[60-free:] {
			b.Want(id, "2", "status")
		}
		testkit.Must(b, tx.Rollback())
		b.apply(batch...)
		for _, id := range ids {
			b.Want(id, "2", "status")
		}
	})
}

// D07: whatever the type of the key, the rows that are not locked are written.
func TestD07_LockedRowInEachLayout(t *testing.T) {
	onLayouts(t, func(b *bench, l *layouts.Layout) {
		for n := 1; n <= 5; n++ {
			b.Add(l, n)
		}
		var batch []outbox.Completion
		for _, c := range b.due(table.DueQuery{}) {
			batch = append(batch, outbox.Completion{Identity: c.Identity, Action: outbox.ActionMarkSent})
		}
		tx, err := b.DB.BeginTx(b.Ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		testkit.Must(b, err)
		_, err = tx.Exec("SELECT 1 FROM " + b.Quoted + " WHERE " + l.Where(3) + " FOR UPDATE")
		testkit.Must(b, err)
		left, held, err := b.store.attempt(b.Ctx, b.table, outbox.ActionMarkSent, batch)
		testkit.Must(b, err)
		if len(batch) != 5 || len(left) > 0 || len(held) != 1 {
			b.Errorf("of %d rows %d are left and %d held: %+v", len(batch), len(left), len(held), held)
		}
		testkit.Must(b, tx.Rollback())
		for _, n := range []int{1, 2, 4, 5} {
			b.WantStatus(l, n, "sent")
		}
		b.WantStatus(l, 3, "pending")
	})
}

// D07: a row of another table that a trigger changes is waited for, as it is by any statement of the application: it may be one that all of them
// change.
func TestD07_LockOfATriggersRowIsWaitedFor(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(20)
		for _, statement := range []string{
			"CREATE TABLE counts (n INT)", "INSERT INTO counts VALUES (0)", "CREATE TRIGGER count_upd AFTER UPDATE ON outbox FOR EACH ROW UPDATE counts SET n = n + 1",
		} {
			testkit.Exec(b, b.DB, statement)
		}
		b.patient(4)
		tx, err := b.DB.Begin()
		testkit.Must(b, err)
		_, err = tx.Exec("UPDATE counts SET n = n + 1")
		testkit.Must(b, err)
		batch := markSent(ids)
		before, done := b.lockWaits(), make(chan error, 1)
		go func() {
			left, err := b.store.Apply(b.Ctx, batch)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("handed back: %+v", left)
			}
			done <- err
		}()
		testkit.WaitFor(b, time.Minute, "a wait for the lock", func() bool { return b.lockWaits() > before })
		testkit.Must(b, tx.Commit())
		testkit.Must(b, <-done)
		for _, id := range ids {
			b.Want(id, "2", "status")
		}
	})
}

// A table whose own lock is held, as by a change of it, is an error: no row of it could be written.
func TestD08_LockedTableIsAnError(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		id := b.Insert(1, "")[0]
		conn, err := b.DB.Conn(b.Ctx)
		testkit.Must(b, err)
		defer conn.Close()
		_, err = conn.ExecContext(b.Ctx, "LOCK TABLES "+b.Quoted+" WRITE")
		testkit.Must(b, err)
		_, err = b.store.Apply(b.Ctx, []outbox.Completion{{Identity: id, Action: outbox.ActionMarkSent}})
		if server.Classify(err) != server.Transient || !strings.Contains(err.Error(), b.table.Name()) {
			b.Errorf("got %v", err)
		}
		_, err = conn.ExecContext(b.Ctx, "UNLOCK TABLES")
		testkit.Must(b, err)
		b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
		b.Want(id, "2", "status")
	})
}

// D07: another session locks the range of the index into which the new status belongs, which the read that compares rows does
// not show. Such a lock delays the statuses too; it does not make rows unwritable.
func TestD07_LockOnTheStatusIndexIsWaitedFor(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.InsertMany(5)
		conn, err := b.DB.Conn(b.Ctx)
		testkit.Must(b, err)
		defer conn.Close()
		for _, statement := range []string{
			"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "BEGIN", "SELECT id FROM " + b.Quoted + " WHERE status = 2 FOR UPDATE",
		} {
			_, err = conn.ExecContext(b.Ctx, statement)
			testkit.Must(b, err)
		}
		batch := markSent(ids)
		left, err := b.store.Apply(b.Ctx, batch)
		testkit.Must(b, err)
		if len(left) != len(ids) || slices.ContainsFunc(left, func(u outbox.WriteError) bool { return !u.Retryable }) {
			b.Errorf("handed back: %+v", left)
		}
		_, err = conn.ExecContext(b.Ctx, "ROLLBACK")
		testkit.Must(b, err)
		b.apply(batch...)
		for _, id := range ids {
			b.Want(id, "2", "status")
		}
	})
}
