package store

import (
	"database/sql"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// P9: from 11.6.2 on MariaDB refuses to lock a row that was changed after the first read of a REPEATABLE READ transaction
// (innodb_snapshot_isolation). A status that is written meanwhile harms no transaction that inserts, whatever it has read.
// One that reads first and then deletes old rows must expect the server's answer.
func TestP9_SnapshotIsolation(t *testing.T) {
	const changed = 1020
	on(t, testkit.MariaDB118, "outbox", func(b *bench) {
		for level, code := range map[sql.IsolationLevel]uint16{sql.LevelRepeatableRead: changed, sql.LevelReadCommitted: 0} {
			old := b.Insert(1, "")[0]
			tx, err := b.DB.BeginTx(b.Ctx, &sql.TxOptions{Isolation: level})
			testkit.Must(b, err)
			var rows int
			testkit.Must(b, tx.QueryRow("SELECT COUNT(*) FROM "+b.Quoted).Scan(&rows))
			left, err := b.store.Apply(b.Ctx, []outbox.Completion{{Identity: old, Action: outbox.ActionMarkSent}})
			if err != nil || len(left) > 0 {
				b.Fatalf("apply: %+v, %v", left, err)
			}
			_, err = tx.Exec("INSERT INTO "+b.Quoted+" SET biz_type='order', biz_key=?, topic='orders', message_body='{}'", level.String())
			testkit.Must(b, err)
			if _, err = tx.Exec("DELETE FROM "+b.Quoted+" WHERE id = ?", old.ID); server.Code(err) != code {
				b.Errorf("%v: a row that was changed since the first read is deleted: %v", level, err)
			}
			testkit.Must(b, tx.Rollback())
		}
	})
}
