package lease

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Table is the lease table in the database; migrations/0102_lease.sql creates it. Its pool needs no identity guard: a failover
// brings the row along, and a server without it answers with an error.
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

// counter is the row that every acquisition changes first. Its log_offset is the newest term: rows are deleted, and a term must
// not be reused. Its process is a random text, so that a counter that was lost and recreated differs.
const counter = 0

// ends is the end of a lease of a number of microseconds.
const ends = "UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND"

// Read implements Rows. The name of the server is read with the rows, and also without any.
func (t *Table) Read(ctx context.Context) (v protocol.View, err error) {
	rows, err := t.db.QueryContext(ctx, "SELECT @@server_id, "+columns+", COALESCE(expires_at <= UTC_TIMESTAMP(3), 1) FROM (SELECT 1) AS one "+
		"LEFT JOIN "+t.name+" ON TRUE ORDER BY epoch")
	if err != nil {
		return v, t.errorf("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := t.scan(rows, &v); err != nil {
			return v, err
		}
	}
	if err := rows.Err(); err != nil {
		return v, t.errorf("read", err)
	}
	return v, nil
}

// scan adds a row to the view. A row that no relay can have written is an error: if it were skipped, a holder might be missed.
func (t *Table) scan(rows *sql.Rows, v *protocol.View) error {
	var r Record
	var term, offset sql.Null[uint64]
	var holder, process, host, until, file, gtids sql.NullString
	var names, source, paused []byte
	if err := rows.Scan(&v.Server, &term, &holder, &process, &host, &names, &until, &source, &file, &offset, &gtids, &paused, &r.Ended); err != nil {
		return t.errorf("read", err)
	}
	switch {
	case !term.Valid: // an empty table
		return nil
	case term.V == counter:
		v.Counted, v.Birth, v.Newest = true, process.String, offset.V
		return nil
	}
	if !v.Counted {
		v.Newest = max(v.Newest, term.V)
	}
	r.Term, r.Holder, r.Process, r.Host, r.Ends = term.V, holder.String, process.String, host.String, until.String
	r.Resume.At = outbox.Position{File: file.String, Offset: offset.V, GTIDs: gtids.String}
	if err := json.Unmarshal(names, &r.Tables); err != nil {
		return fmt.Errorf("lease table %s, epoch %d: table_names was not written by a relay: %w; delete the row if no relay is running", t.name, r.Term, err)
	}
	if err := json.Unmarshal(source, &r.Resume.Source); err != nil {
		r.Resume = Resume{} // the position only saves time, and without its server it is unusable
	}
	var err error
	if r.Resume.Pause, err = readPause(paused); err != nil {
		return fmt.Errorf("lease table %s, epoch %d: paused was not written by a relay: %w; empty it if no operator has paused the relay", t.name, r.Term, err)
	}
	v.Rows = append(v.Rows, r)
	return nil
}

// Begin implements Rows.
func (t *Table) Begin(ctx context.Context, birth string, newest uint64) error {
	_, err := t.db.ExecContext(ctx, "INSERT IGNORE INTO "+t.name+" (epoch, holder, process, host, table_names, log_offset, gtid_set) VALUES (?, '', ?, '', '[]', ?, '')",
		counter, birth, newest)
	if err != nil {
		return t.errorf("begin", err)
	}
	return nil
}

// Take implements Rows. One changed row of From stops all of it.
func (t *Table) Take(ctx context.Context, take protocol.Take, ttl time.Duration) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return t.errorf("take", err)
	}
	if err := t.take(ctx, tx, take, ttl); err != nil {
		_ = tx.Rollback() // the server does it when the connection is gone
		return err
	}
	if err := tx.Commit(); err != nil {
		return t.errorf("take", err)
	}
	return nil
}

func (t *Table) take(ctx context.Context, tx *sql.Tx, take protocol.Take, ttl time.Duration) error {
	// Two concurrent acquisitions wait for each other here, and the second one finds that the counter has moved.
	done, err := tx.ExecContext(ctx, "UPDATE "+t.name+" SET log_offset = ? WHERE epoch = ? AND log_offset = ? AND process = ? AND @@server_id = ?",
		take.Next.Term, counter, take.Newest, take.Birth, take.Server)
	if err != nil {
		return t.errorf("take", err)
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return errors.Join(ErrTaken, err)
	}
	for _, r := range take.From {
		if err := t.takeOut(ctx, tx, r, take.Next.Tables); err != nil {
			return err
		}
	}
	return t.insert(ctx, tx, take.Next, ttl)
}

// takeOut takes tables out of a row that has not changed since it was read.
func (t *Table) takeOut(ctx context.Context, tx *sql.Tx, r Record, tables []string) error {
	statement, args := "DELETE FROM "+t.name, []any{}
	if rest := slices.DeleteFunc(slices.Clone(r.Tables), func(name string) bool { return slices.Contains(tables, name) }); len(rest) > 0 {
		names, err := json.Marshal(rest)
		if err != nil {
			return err
		}
		statement, args = "UPDATE "+t.name+" SET table_names = ?", append(args, string(names))
	}
	done, err := tx.ExecContext(ctx, statement+" WHERE epoch = ? AND expires_at <=> ?", append(args, r.Term, nullable(r.Ends))...)
	if err != nil {
		return t.errorf("take", err)
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return errors.Join(ErrTaken, err)
	}
	return nil
}

func (t *Table) insert(ctx context.Context, tx *sql.Tx, next Record, ttl time.Duration) error {
	names, err := json.Marshal(next.Tables)
	if err != nil {
		return err
	}
	source, err := json.Marshal(next.Resume.Source)
	if err != nil {
		return err
	}
	paused, err := paused(next.Resume)
	if err != nil {
		return err
	}
	at := next.Resume.At
	_, err = tx.ExecContext(ctx, "INSERT INTO "+t.name+" ("+columns+") VALUES (?, ?, ?, ?, ?, "+ends+", ?, ?, ?, ?, ?)",
		next.Term, next.Holder, next.Process, cut(next.Host, 255), string(names), ttl.Microseconds(), string(source), at.File, at.Offset, at.GTIDs, paused)
	if err != nil {
		return t.errorf("take", err)
	}
	return nil
}

// Renew implements Rows. A position without GTIDs is renewed on the server that it names alone: on a copy of that server the row stays as it
// came there, until the relay has accepted the copy. See Trace.
func (t *Table) Renew(ctx context.Context, own protocol.Acquisition, at Resume, ttl time.Duration) (bool, error) {
	paused, err := paused(at)
	if err != nil {
		return false, err
	}
	where := " AND @@server_id = " + strconv.FormatUint(uint64(own.Server), 10) + accepted(at)
	return t.update(ctx, "renew", own, at, where, "expires_at = "+ends+", paused = ?", ttl.Microseconds(), paused)
}

// Release implements Rows. With GTIDs it works on any server: after a failover it leaves the position there. Without them see Renew.
func (t *Table) Release(ctx context.Context, own protocol.Acquisition, at Resume) error {
	_, err := t.update(ctx, "release", own, at, accepted(at), "expires_at = NULL")
	return err
}

// accepted is the condition that a position without GTIDs is written only on the server that it names.
func accepted(at Resume) string {
	if at.Source.Flavor != outbox.MySQL || at.Source.UUID == "" || at.At.IsZero() || at.At.GTIDs != "" {
		return ""
	}
	return " AND @@server_uuid = '" + strings.ReplaceAll(at.Source.UUID, "'", "''") + "'"
}

// update sets the end and, when it is known, the position. The count is of matched rows.
func (t *Table) update(ctx context.Context, what string, own protocol.Acquisition, at Resume, where, set string, args ...any) (bool, error) {
	if !at.At.IsZero() {
		source, err := json.Marshal(at.Source)
		if err != nil {
			return false, err
		}
		set += ", source = ?, log_file = ?, log_offset = ?, gtid_set = ?"
		args = append(args, string(source), at.At.File, at.At.Offset, at.At.GTIDs)
	}
	names, err := json.Marshal(own.Tables)
	if err != nil {
		return false, err
	}
	done, err := t.db.ExecContext(ctx, "UPDATE "+t.name+" SET "+set+" WHERE epoch = ? AND process = ? AND table_names = ?"+where,
		append(args, own.Term, own.Process, string(names))...)
	if err != nil {
		return false, t.errorf(what, err)
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

func paused(r Resume) (string, error) {
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

// cut shortens text to a number of characters.
func cut(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit])
	}
	return text
}
