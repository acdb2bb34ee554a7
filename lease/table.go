package lease

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Table is the lease table in the database; migrations/0102_lease.sql makes it. Its pool needs no identity guard: a failover brings
// the row along, and a server without it answers with an error.
type Table struct {
	db   *sql.DB
	name string // quoted
}

// NewTable returns the table of a name, schema.table. It does no I/O.
func NewTable(db *sql.DB, name string) *Table { return &Table{db: db, name: quoted(name)} }

func quoted(name string) string {
	schema, table, _ := strings.Cut(name, ".")
	return server.QuoteName(schema) + "." + server.QuoteName(table)
}

var _ Rows = (*Table)(nil)

const columns = "epoch, holder, process, host, table_names, expires_at, source, log_file, log_offset, gtid_set, paused"

// counter is the row that every acquisition changes first. Its log_offset is the number of the newest one: rows are deleted, and a number
// must never come again.
const counter = 0

// ends is the end of a lease of so many microseconds.
const ends = "UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND"

// Read implements Rows.
func (t *Table) Read(ctx context.Context) (all []Record, newest uint64, err error) {
	rows, err := t.db.QueryContext(ctx, "SELECT "+columns+", COALESCE(expires_at <= UTC_TIMESTAMP(3), 1) FROM "+t.name+" ORDER BY epoch")
	if err != nil {
		return nil, 0, t.errorf("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r Record
		var names, source, paused []byte
		var until sql.NullString
		at := &r.Resume.At
		if err := rows.Scan(&r.Epoch, &r.Holder, &r.Process, &r.Host, &names, &until, &source, &at.File, &at.Offset, &at.GTIDs, &paused, &r.Ended); err != nil {
			return nil, 0, t.errorf("read", err)
		}
		if newest = max(newest, r.Epoch); r.Epoch == counter {
			newest = at.Offset
			continue
		}
		r.Ends = until.String
		if err := json.Unmarshal(names, &r.Tables); err != nil {
			return nil, 0, fmt.Errorf("lease table %s, epoch %d: table_names is not what a relay writes: %w; delete the row if no relay is running", t.name, r.Epoch, err)
		}
		if err := json.Unmarshal(source, &r.Resume.Source); err != nil {
			r.Resume = Resume{} // the position is a help, and without its server it is none
		}
		if r.Resume.Pause, err = readPause(paused); err != nil {
			return nil, 0, fmt.Errorf("lease table %s, epoch %d: paused is not what a relay writes: %w; empty it if no operator has paused the relay", t.name, r.Epoch, err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, t.errorf("read", err)
	}
	return all, newest, nil
}

// Take implements Rows.
func (t *Table) Take(ctx context.Context, next Record, newest uint64, from []Record, ttl time.Duration) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return t.errorf("take", err)
	}
	if err := t.take(ctx, tx, next, newest, from, ttl); err != nil {
		_ = tx.Rollback() // the server does it when the connection is gone
		return err
	}
	if err := tx.Commit(); err != nil {
		return t.errorf("take", err)
	}
	return nil
}

func (t *Table) take(ctx context.Context, tx *sql.Tx, next Record, newest uint64, from []Record, ttl time.Duration) error {
	if err := t.count(ctx, tx, newest, next.Epoch); err != nil {
		return err
	}
	for _, r := range from {
		statement, args := "DELETE FROM "+t.name, []any{}
		if rest := slices.DeleteFunc(slices.Clone(r.Tables), func(name string) bool { return slices.Contains(next.Tables, name) }); len(rest) > 0 {
			names, err := json.Marshal(rest)
			if err != nil {
				return err
			}
			statement, args = "UPDATE "+t.name+" SET table_names = ?", append(args, string(names))
		}
		done, err := tx.ExecContext(ctx, statement+" WHERE epoch = ? AND expires_at <=> ?", append(args, r.Epoch, nullable(r.Ends))...)
		if err != nil {
			return t.errorf("take", err)
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return errors.Join(ErrTaken, err)
		}
	}
	names, err := json.Marshal(next.Tables)
	if err != nil {
		return err
	}
	source, file, offset, gtids, err := next.Resume.position()
	if err != nil {
		return err
	}
	paused, err := next.Resume.paused()
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO "+t.name+" ("+columns+") VALUES (?, ?, ?, ?, ?, "+ends+", ?, ?, ?, ?, ?)",
		next.Epoch, next.Holder, next.Process, cut(next.Host, 255), string(names), ttl.Microseconds(), source, file, offset, gtids, paused)
	if err != nil {
		return t.errorf("take", err)
	}
	return nil
}

// count moves the counter on. Two that acquire at once wait for each other here, and the second one finds that it has moved.
func (t *Table) count(ctx context.Context, tx *sql.Tx, from, to uint64) error {
	// The row is missing before the first acquisition, or when somebody has deleted it.
	_, err := tx.ExecContext(ctx, "INSERT IGNORE INTO "+t.name+" (epoch, holder, process, host, table_names, log_offset, gtid_set) VALUES (?, '', '', '', '[]', ?, '')", counter, from)
	if err != nil {
		return t.errorf("take", err)
	}
	done, err := tx.ExecContext(ctx, "UPDATE "+t.name+" SET log_offset = ? WHERE epoch = ? AND log_offset = ?", to, counter, from)
	if err != nil {
		return t.errorf("take", err)
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return errors.Join(ErrTaken, err)
	}
	return nil
}

// Renew implements Rows.
func (t *Table) Renew(ctx context.Context, epoch uint64, at Resume, ttl time.Duration) (bool, error) {
	paused, err := at.paused()
	if err != nil {
		return false, err
	}
	return t.update(ctx, epoch, at, "expires_at = "+ends+", paused = ?", ttl.Microseconds(), paused)
}

// Release implements Rows.
func (t *Table) Release(ctx context.Context, epoch uint64, at Resume) error {
	_, err := t.update(ctx, epoch, at, "expires_at = NULL")
	return err
}

// update sets the end and, when it is known, the position. The count is of matched rows.
func (t *Table) update(ctx context.Context, epoch uint64, at Resume, set string, args ...any) (bool, error) {
	if !at.At.IsZero() {
		source, file, offset, gtids, err := at.position()
		if err != nil {
			return false, err
		}
		set += ", source = ?, log_file = ?, log_offset = ?, gtid_set = ?"
		args = append(args, source, file, offset, gtids)
	}
	done, err := t.db.ExecContext(ctx, "UPDATE "+t.name+" SET "+set+" WHERE epoch = ?", append(args, epoch)...)
	if err != nil {
		return false, t.errorf("renew", err)
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

func (r Resume) position() (source, file string, offset uint64, gtids string, err error) {
	text, err := json.Marshal(r.Source)
	return string(text), r.At.File, r.At.Offset, r.At.GTIDs, err
}

func (r Resume) paused() (string, error) {
	if r.Pause == nil {
		return "", nil
	}
	text, err := json.Marshal(r.Pause)
	return string(text), err
}

func readPause(text []byte) (*outbox.Pause, error) {
	if len(text) == 0 {
		return nil, nil
	}
	p := new(outbox.Pause)
	return p, json.Unmarshal(text, p)
}

func (t *Table) errorf(what string, err error) error {
	return fmt.Errorf("%s the lease in %s: %w", what, t.name, err)
}

func nullable(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }

// cut shortens text to so many characters.
func cut(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit])
	}
	return text
}
