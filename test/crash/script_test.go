package crash

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// script writes what is difficult for readers of the log: long transactions, compressed ones, savepoints, other row images,
// tagged GTIDs or a second domain, with DDL between them.
func (b *bed) script(t *testing.T) {
	t.Helper()
	writers.RLock()
	defer writers.RUnlock()
	b.writeScript(t)
}

func (b *bed) writeScript(t *testing.T) {
	t.Helper()
	conn, err := b.sql.Conn(t.Context())
	testkit.Must(t, err)
	defer conn.Close()
	for _, step := range []func(context.Context, *sql.Conn) error{
		b.sixtyEvents, b.compressed, b.savepoints, b.ddl, b.images, b.otherGTIDs, b.manyRows, b.rolledBack, b.rewritten,
		b.single,
	} {
		testkit.Must(t, step(t.Context(), conn))
	}
}

// each inserts rows one by one: one row event for each.
func (b *bed) each(n int) func(context.Context, *sql.Tx) ([]relay.Row, error) {
	return func(ctx context.Context, tx *sql.Tx) ([]relay.Row, error) {
		rows := b.writer.Rows(n)
		for _, r := range rows {
			if err := b.table.Insert(ctx, tx, r); err != nil {
				return nil, err
			}
		}
		return rows, nil
	}
}

// sixtyEvents is one transaction of 60 row events (A02, A04).
func (b *bed) sixtyEvents(ctx context.Context, conn *sql.Conn) error {
	return b.writer.In(ctx, conn, true, b.each(60))
}

// with sets session variables, runs f and resets them.
func with(ctx context.Context, conn *sql.Conn, set, back string, f func() error) error {
	if _, err := conn.ExecContext(ctx, set); err != nil {
		return fmt.Errorf("%s: %w", set, err)
	}
	if err := f(); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, back)
	return err
}

// compressed transactions are one event in the log of MySQL 8.0 and newer (A20); MariaDB compresses events, see newBed.
func (b *bed) compressed(ctx context.Context, conn *sql.Conn) error {
	write := func() error {
		if err := b.writer.In(ctx, conn, true, b.each(8)); err != nil {
			return err
		}
		return b.single(ctx, conn)
	}
	if b.db.Flavor == testkit.MariaDB || b.db.Before(8, 0) {
		return write()
	}
	return with(ctx, conn, "SET SESSION binlog_transaction_compression = ON", "SET SESSION binlog_transaction_compression = OFF", write)
}

// savepoints are Query events inside a transaction and do not end it; a part that is rolled back to one was never committed
// (A32).
func (b *bed) savepoints(ctx context.Context, conn *sql.Conn) error {
	return b.writer.In(ctx, conn, true, func(ctx context.Context, tx *sql.Tx) ([]relay.Row, error) {
		rows := b.writer.Rows(5)
		for i, statement := range []string{"SAVEPOINT one", "SAVEPOINT two", "ROLLBACK TO two", "RELEASE SAVEPOINT one", ""} {
			if err := b.table.Insert(ctx, tx, rows[i]); err != nil {
				return nil, err
			}
			if statement == "" {
				break
			}
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return nil, err
			}
		}
		return append(rows[:2:2], rows[3:]...), nil // the third was written after savepoint two and rolled back to it
	})
}

// ddl changes the application's table and the outbox table between transactions.
func (b *bed) ddl(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range []string{
		"ALTER TABLE purchase ADD COLUMN extra INT FIRST", "ALTER TABLE " + b.table.Name() + " ADD COLUMN extra VARCHAR(10) DEFAULT 'x' AFTER " + b.table.ID(),
		"ALTER TABLE purchase DROP COLUMN extra", "ALTER TABLE " + b.table.Name() + " DROP COLUMN extra",
	} {
		// A copy, because the servers limit the number of instant changes of one table.
		if _, err := conn.ExecContext(ctx, statement+", ALGORITHM=COPY"); err != nil {
			return err
		}
		if err := b.writer.In(ctx, conn, true, b.each(2)); err != nil {
			return err
		}
	}
	return nil
}

// images: a minimal one lacks the columns that an INSERT does not name (A25).
func (b *bed) images(ctx context.Context, conn *sql.Conn) error {
	for _, image := range []string{"MINIMAL", "NOBLOB"} {
		err := with(ctx, conn, "SET SESSION binlog_row_image = "+image, "SET SESSION binlog_row_image = FULL", func() error {
			return b.writer.In(ctx, conn, true, b.each(4))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// otherGTIDs: tagged ones followed by untagged (A22), or a second domain (A42). MySQL before 8.3 has neither.
func (b *bed) otherGTIDs(ctx context.Context, conn *sql.Conn) error {
	set, back := "SET gtid_next = 'AUTOMATIC:app'", "SET gtid_next = 'AUTOMATIC'"
	if b.db.Flavor == testkit.MariaDB {
		set, back = "SET SESSION gtid_domain_id = 7", "SET SESSION gtid_domain_id = 0"
	}
	if b.db.Before(8, 3) {
		set, back = "DO 0", "DO 0"
	}
	for range 2 {
		if err := with(ctx, conn, set, back, func() error { return b.writer.In(ctx, conn, true, b.each(3)) }); err != nil {
			return err
		}
		if err := b.writer.In(ctx, conn, true, b.each(3)); err != nil {
			return err
		}
	}
	return nil
}

// manyRows is one statement (A61).
func (b *bed) manyRows(ctx context.Context, conn *sql.Conn) error {
	return b.writer.In(ctx, conn, true, func(ctx context.Context, tx *sql.Tx) ([]relay.Row, error) {
		rows := b.writer.Rows(40)
		return rows, b.table.Insert(ctx, tx, rows...)
	})
}

func (b *bed) rolledBack(ctx context.Context, conn *sql.Conn) error {
	return b.writer.In(ctx, conn, false, b.each(3))
}

// rewritten is left to the sweep, which claims it.
func (b *bed) rewritten(ctx context.Context, conn *sql.Conn) error {
	return b.writer.In(ctx, conn, true, b.writer.Rewritten)
}

func (b *bed) single(ctx context.Context, conn *sql.Conn) error {
	rows := b.writer.Rows(1)
	if err := b.table.Insert(ctx, conn, rows...); err != nil {
		return err
	}
	b.load.Ledger.Committed(rows...)
	return nil
}
