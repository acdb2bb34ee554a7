package table

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// D07: a row that another session has locked is returned as not written. All other rows of its batch are written meanwhile, and
// the row itself after the lock is released.
func TestD07_LockedRowIsHandedBack(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.insertMany(300)
		gone := outbox.Identity{Table: b.table.name, ID: "999999", MessageID: "order:gone"}
		tx := b.lock(ids[150])
		var batch []outbox.Completion
		for _, id := range append(ids, gone) {
			batch = append(batch, outbox.Completion{Identity: id, Action: outbox.ActionMarkSent, RetryCount: 0})
		}
		left, err := b.store.Apply(b.ctx, batch)
		testkit.Must(b, err)
		if len(left) != 2 || !left[0].Retryable || !left[1].Retryable || left[0].Identity != ids[150] || left[1].Identity != gone {
			b.Fatalf("handed back: %+v", left)
		}
		for _, n := range []int{0, 149, 151, 299} {
			b.want(ids[n], "2", "status")
		}
		testkit.Must(b, tx.Rollback())
		if left, err = b.store.Apply(b.ctx, []outbox.Completion{left[0].Completion, left[1].Completion}); err != nil || len(left) > 0 {
			b.Fatalf("afterwards: %+v, %v", left, err)
		}
		b.want(ids[150], "2", "status")
	})
}

// D07: a sweep claims what is not locked.
func TestD07_ClaimLeavesLockedRowsOut(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.insertMany(20)
		tx := b.lock(ids[7])
		defer func() { testkit.Must(b, tx.Rollback()) }()
		var candidates []outbox.Candidate
		for _, id := range ids {
			candidates = append(candidates, outbox.Candidate{Identity: id, Status: outbox.Pending})
		}
		stamp, err := b.store.Claim(b.ctx, candidates)
		testkit.Must(b, err)
		messages, _, err := b.store.ReadBack(b.ctx, stamp, ids)
		testkit.Must(b, err)
		if len(messages) != len(ids)-1 || slices.ContainsFunc(messages, func(m *outbox.Message) bool { return m.Identity == ids[7] }) {
			b.Fatalf("%d of %d rows were claimed", len(messages), len(ids))
		}
	})
}

// lock holds the lock of a row until the transaction ends.
func (b *bench) lock(id outbox.Identity) *sql.Tx {
	b.Helper()
	tx, err := b.db.Begin()
	testkit.Must(b, err)
	_, err = tx.Exec("SELECT id FROM " + b.name + " WHERE id = " + id.ID + " FOR UPDATE")
	testkit.Must(b, err)
	return tx
}

// A table whose own lock is held, as by a change of it, is an error: no row of it could be written.
func TestD08_LockedTableIsAnError(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		id := b.insert(1, "")[0]
		conn, err := b.db.Conn(b.ctx)
		testkit.Must(b, err)
		defer conn.Close()
		_, err = conn.ExecContext(b.ctx, "LOCK TABLES "+b.name+" WRITE")
		testkit.Must(b, err)
		_, err = b.store.Apply(b.ctx, []outbox.Completion{{Identity: id, Action: outbox.ActionMarkSent}})
		if server.Classify(err) != server.Transient || !strings.Contains(err.Error(), b.table.name) {
			b.Errorf("got %v", err)
		}
		_, err = conn.ExecContext(b.ctx, "UNLOCK TABLES")
		testkit.Must(b, err)
		b.apply(outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
		b.want(id, "2", "status")
	})
}

// D07: another session locks the range of the index into which the new status belongs, which the read that compares rows does
// not show. Such a lock delays the statuses too; it does not make rows unwritable.
func TestD07_LockOnTheStatusIndexIsWaitedFor(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		ids := b.insertMany(5)
		conn, err := b.db.Conn(b.ctx)
		testkit.Must(b, err)
		defer conn.Close()
		for _, statement := range []string{
			"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "BEGIN", "SELECT id FROM " + b.name + " WHERE status = 2 FOR UPDATE",
		} {
			_, err = conn.ExecContext(b.ctx, statement)
			testkit.Must(b, err)
		}
		var batch []outbox.Completion
		for _, id := range ids {
			batch = append(batch, outbox.Completion{Identity: id, Action: outbox.ActionMarkSent})
		}
		left, err := b.store.Apply(b.ctx, batch)
		testkit.Must(b, err)
		if len(left) != len(ids) || slices.ContainsFunc(left, func(u outbox.WriteError) bool { return !u.Retryable }) {
			b.Errorf("handed back: %+v", left)
		}
		_, err = conn.ExecContext(b.ctx, "ROLLBACK")
		testkit.Must(b, err)
		b.apply(batch...)
		for _, id := range ids {
			b.want(id, "2", "status")
		}
	})
}
