package store

import (
	"maps"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// The end of an online schema change by triggers, when a statement of the relay meets it: the statement has opened the table and is about to open
// the copy that the trigger writes, and the rename has the copy and wants the table. The server lets the statement give way and begin again.
// MariaDB 10.11 ends with a segmentation fault there, if the statement is an UPDATE of a table joined with a derived one.
func TestA27_TheRenameMeetsAStatement(t *testing.T) {
	runs := maps.Clone(writes)
	runs["expire"] = func(b *bench, ids []outbox.Identity) error {
		_, err := b.store.Expire(b.Ctx, b.table.Name(), sentWeek, keys(ids))
		return err
	}
	for what, run := range runs {
		t.Run(what, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				ids := b.InsertMany(20)
				if what == "expire" {
					testkit.Exec(b, b.DB, "UPDATE outbox SET status=2, created_at=NOW(3) - INTERVAL 50 DAY, updated_at=NOW(3) - INTERVAL 50 DAY, last_exec_time=NOW(3) - INTERVAL 50 DAY")
				}
				for _, statement := range []string{
					"CREATE TABLE copy_of LIKE outbox",
					"INSERT INTO copy_of SELECT * FROM outbox",
					"CREATE TRIGGER osc_upd AFTER UPDATE ON outbox FOR EACH ROW UPDATE copy_of SET status = NEW.status WHERE id = OLD.id",
					"CREATE TRIGGER osc_del AFTER DELETE ON outbox FOR EACH ROW DELETE FROM copy_of WHERE id = OLD.id",
				} {
					testkit.Exec(b, b.DB, statement)
				}
				b.meetsRename(func() error { return run(b, ids) })
			})
		})
	}
}

// meetsRename begins a statement of the store while a rename of outbox and of copy_of is under way, ends both and renames the tables back.
func (b *bench) meetsRename(run func() error) {
	b.Helper()
	b.store.db.SetMaxOpenConns(1)
	_, err := b.store.db.ExecContext(b.Ctx, "SET SESSION lock_wait_timeout = 300")
	testkit.Must(b, err)
	reader, err := b.DB.BeginTx(b.Ctx, nil)
	testkit.Must(b, err)
	var n int
	testkit.Must(b, reader.QueryRow("SELECT COUNT(*) FROM copy_of").Scan(&n))
	renamed, done := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := b.DB.ExecContext(b.Ctx, "RENAME TABLE outbox TO outbox_old, copy_of TO outbox")
		renamed <- err
	}()
	b.waiting(1) // for the end of the reader, on copy_of
	go func() { done <- run() }()
	b.waiting(2) // the statement, on copy_of, with a lock on outbox
	testkit.Must(b, reader.Rollback())
	testkit.Must(b, <-renamed)
	if err := <-done; server.Classify(err) == server.Lost {
		b.Fatalf("the connection of the statement was lost: %v", err)
	}
	testkit.Exec(b, b.DB, "RENAME TABLE outbox TO copy_of, outbox_old TO outbox") // the server is there
}

// waiting waits until n sessions of this schema wait for the lock of a table.
func (b *bench) waiting(n int) {
	b.Helper()
	testkit.WaitFor(b, time.Minute, "sessions that wait for the lock of a table", func() bool { return b.nowWaiting() >= n })
}

// nowWaiting counts the sessions of this schema that wait for the lock of a table.
func (b *bench) nowWaiting() (n int) {
	b.Helper()
	testkit.Must(b, b.DB.QueryRow("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata lock%' "+
		"AND (DB = DATABASE() OR INFO LIKE CONCAT('%', DATABASE(), '.%') OR INFO LIKE CONCAT('%', DATABASE(), '`.%'))").Scan(&n))
	return n
}
