package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Names of the tables that rows move to, behind the name of their own table.
const (
	ArchiveSuffix = "_archive"
	FailedSuffix  = "_failed"
)

// Expiry says which final rows leave a table, and where they go.
type Expiry struct {
	Status outbox.Status // Sent or Failed; rows in no other state leave
	Age    time.Duration // since the row got this status, by the database's clock
	Into   string        // the end of the name of the table that they move to; "" deletes them
	// Retried says that rows with this status are tried again (Table.FailedEvery): their age counts from the first failure, not from the last.
	Retried bool
}

// consumed is the name of the consumers' state that is as final as SENT: rows in it leave with the SENT ones. Other states of the
// consumers (suspended) are theirs to end.
const consumed = "consumed"

// finalCodes are the codes of the rows that leave with a status; none where the table has no such status.
func (t *Table) finalCodes(status outbox.Status) (codes []string) {
	if code := t.mapping.Codes[status]; code != "" {
		codes = append(codes, code)
	}
	if code := t.mapping.States[consumed]; code != "" && status == outbox.Sent {
		codes = append(codes, code)
	}
	return codes
}

// expired writes the condition under which a row leaves. A row whose columns do not say since when it is final never does.
func (t *Table) expired(s *statement, e Expiry) {
	codes := t.finalCodes(e.Status)
	if len(codes) == 0 {
		s.add("FALSE")
		return
	}
	s.add("(", t.column(StatusCode), " IN (")
	s.list(len(codes), func(i int) { t.literal(s, codes[i]) })
	s.add(") AND ")
	if first := t.firstFailure(); e.Retried && first != "" {
		s.add("COALESCE(", first, " <= ", t.now(NextRetryTime), " - INTERVAL ")
		s.micros(e.Age)
		s.add(" MICROSECOND, ")
		t.since(s, finalSince(e.Status), e.Age, "FALSE")
		s.add("))")
		return
	}
	t.since(s, finalSince(e.Status), e.Age, "FALSE")
	s.add(")")
}

// firstFailure is when a row failed first, though it was tried again since: retryFailed leaves that in the due time, which a row that is not
// PENDING has no use for. NULL where it was not tried again; "" where the table cannot say it.
func (t *Table) firstFailure() string {
	failed := t.failedAt()
	if failed == "" || !t.has(NextRetryTime) {
		return ""
	}
	return "LEAST(" + t.column(NextRetryTime) + ", " + failed + ")"
}

// failedAt is the column that says when a row became FAILED, where its values can be written into the due time; "" otherwise.
func (t *Table) failedAt() string {
	for _, role := range []Column{LastExecTime, UpdatedAt} {
		if t.has(role) && t.has(NextRetryTime) && t.columns[role].DataType == t.columns[NextRetryTime].DataType {
			return t.column(role)
		}
	}
	return ""
}

// finalSince are the roles that tell when a row became final, the best first.
func finalSince(status outbox.Status) []Column {
	if status == outbox.Sent {
		return []Column{SentAt, LastExecTime, UpdatedAt, CreatedAt}
	}
	return []Column{LastExecTime, UpdatedAt, CreatedAt}
}

// since writes that the first of some times which a row has lies at least so long back. Each is compared in the zone of its own
// column.
func (t *Table) since(s *statement, roles []Column, age time.Duration, otherwise string) {
	s.add("COALESCE(")
	for _, role := range roles {
		if t.has(role) {
			t.ago(s, role, age)
			s.add(", ")
		}
	}
	s.add(otherwise, ")")
}

// Left is what became of rows that were to leave.
type Left struct {
	Rows    int // are gone from the table
	Skipped int // another session holds their lock, or they have changed since they were seen
	Refused int // the server does not let them go, for their data: a key that the other table has already, a trigger
	// ID and Reason are those of the last refused row.
	ID, Reason string
}

func (l *Left) add(more Left) {
	l.Rows, l.Skipped, l.Refused = l.Rows+more.Rows, l.Skipped+more.Skipped, l.Refused+more.Refused
	if more.Refused > 0 {
		l.ID, l.Reason = more.ID, more.Reason
	}
}

// Expire deletes or moves rows that Expired has shown, at most 500 of them, in transactions of 16 MiB at most: after a crash each is in
// exactly one table. State and age are looked at once more, under the lock of the row. It waits for no row that another session has locked.
// A row that no statement can name, or that the server does not let go, stays and is noted as refused; the others leave.
func (s *Store) Expire(ctx context.Context, table string, e Expiry, ids []string) (Left, error) {
	t, err := s.table(table)
	if err == nil && len(ids) > maxRows {
		err = fmt.Errorf("%d rows in one statement, %d at most", len(ids), maxRows)
	}
	var left Left
	if err == nil {
		good, refused := named(t, ids, func(id *string) outbox.Identity { return outbox.Identity{Table: t.name, ID: *id} })
		for _, r := range refused {
			left.add(Left{Refused: 1, ID: r.ID, Reason: r.Reason})
		}
		s.refused.add(refused...)
		var parts [][]string
		if parts, err = s.expiring(ctx, t, e, good); err == nil {
			for _, part := range parts {
				var more Left
				more, err = s.expire(ctx, t, e, part)
				if left.add(more); err != nil {
					break
				}
			}
		}
	}
	if err != nil {
		return left, fmt.Errorf("take %d expired rows out of %s: %w", len(ids), table, err)
	}
	return left, nil
}

// expiring divides rows that move into transactions of 16 MiB at most: the log has each row that is written into the other table, whole.
func (s *Store) expiring(ctx context.Context, t *Table, e Expiry, ids []string) ([][]string, error) {
	if len(ids) == 0 || e.Into == "" {
		return slices.Collect(slices.Chunk(ids, maxRows)), nil
	}
	rows := make([]outbox.Identity, len(ids))
	for i, id := range ids {
		rows[i] = outbox.Identity{Table: t.name, ID: id}
	}
	sizes := make(map[outbox.Identity]int64, len(rows))
	if _, err := s.byKeyApart(rows, func(t *Table, chunk []outbox.Identity) error { return s.sizes(ctx, t, chunk, sizes) }); err != nil {
		return nil, err
	}
	return pieces(ids, func(id string) int64 { return sizes[outbox.Identity{Table: t.name, ID: id}] }), nil
}

// expire splits down to the one row when the server refuses a statement for its data.
func (s *Store) expire(ctx context.Context, t *Table, e Expiry, ids []string) (left Left, err error) {
	var gone int
	err = s.again(ctx, func() error {
		gone, err = s.leave(ctx, t, e.Into, func(rows *statement) {
			t.idIn(rows, len(ids), func(i int) string { return ids[i] })
			rows.add(" AND ")
			t.expired(rows, e)
		})
		return err
	})
	switch {
	case server.LockWait(err): // the table is being changed, or a lock is on more than rows
		return Left{Skipped: len(ids)}, nil
	case server.Classify(err) != server.Data:
		return Left{Rows: gone, Skipped: len(ids) - gone}, err
	case len(ids) == 1:
		s.refused.add(RefusedRow{Identity: outbox.Identity{Table: t.name, ID: ids[0]}, Reason: err.Error()})
		return Left{Refused: 1, ID: ids[0], Reason: err.Error()}, nil
	}
	for _, half := range [][]string{ids[:len(ids)/2], ids[len(ids)/2:]} {
		more, err := s.expire(ctx, t, e, half)
		left.add(more)
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

// leave is the transaction. It locks the rows that a condition names first, then copies, then deletes them.
func (s *Store) leave(ctx context.Context, t *Table, into string, where func(*statement)) (gone int, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			if rerr := tx.Rollback(); !errors.Is(rerr, sql.ErrTxDone) {
				err = errors.Join(err, rerr)
			}
		}
	}()
	mine, err := lockRows(ctx, tx, t, where)
	if err != nil || len(mine) == 0 {
		return 0, errors.Join(err, tx.Rollback())
	}
	if into != "" {
		if err := t.copyRows(ctx, tx, into, mine); err != nil {
			return 0, err
		}
	}
	if err := run(ctx, tx, t.deleteRows(mine), len(mine)); err != nil {
		return 0, err
	}
	return len(mine), tx.Commit()
}

// lockRows returns the rows that fulfil the condition now and that no other session has locked.
func lockRows(ctx context.Context, tx *sql.Tx, t *Table, where func(*statement)) (mine []string, err error) {
	query := &statement{}
	query.add("SELECT ", t.column(ID), " FROM ", t.quoted, " FORCE INDEX (PRIMARY) WHERE ")
	where(query)
	query.add(" FOR UPDATE SKIP LOCKED")
	rows, err := tx.QueryContext(ctx, query.text.String(), query.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id sql.RawBytes
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		mine = append(mine, string(t.keyText(ID, id)))
	}
	return mine, rows.Err()
}

// deleteRows goes by the primary key for its order and limit: otherwise a server that sees few rows in the table reads all of them, and
// waits for locks on rows that are not named. A DELETE cannot name its index; the form that can is no help, both servers ignore it.
func (t *Table) deleteRows(ids []string) *statement {
	s := &statement{}
	s.add("DELETE FROM ", t.quoted, " WHERE ")
	t.idIn(s, len(ids), func(i int) string { return ids[i] })
	s.add(" ORDER BY ", t.column(ID), " LIMIT ", strconv.Itoa(len(ids)))
	return s
}

// run wants a statement to concern exactly so many rows, which this transaction has locked.
func run(ctx context.Context, tx *sql.Tx, s *statement, want int) error {
	result, err := tx.ExecContext(ctx, s.text.String(), s.args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(want) {
		return errors.Join(err, fmt.Errorf("%d rows were changed where %d are locked; nothing was changed", n, want))
	}
	return nil
}

// TimeOfDay is the database's time in the zone of a table's DATETIME columns, since midnight.
func (s *Store) TimeOfDay(ctx context.Context, table string) (time.Duration, error) {
	t, err := s.table(table)
	if err != nil {
		return 0, err
	}
	var seconds int64
	if err := s.db.QueryRowContext(ctx, "SELECT FLOOR(TIME_TO_SEC(TIME("+t.clock()+")))").Scan(&seconds); err != nil {
		return 0, fmt.Errorf("read the database's clock: %w", err)
	}
	return time.Duration(seconds) * time.Second, nil
}

// History is the length of the server's list of changes that are not purged; false when the account may not see it.
func (s *Store) History(ctx context.Context) (length int64, known bool, err error) {
	return server.HistoryLength(ctx, s.db)
}
