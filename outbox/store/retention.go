package store

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
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// consumed is the name of the consumers' state that is as final as SENT: rows in it leave with the SENT ones. Other states of the
// consumers (suspended) are theirs to end.
const consumed = "consumed"

// finalCodes are the codes of the rows that leave with a status; none where the table has no such status.
func (t *mapped) finalCodes(status outbox.Status) (codes []string) {
	if code := t.Mapping().Codes[status]; code != "" {
		codes = append(codes, code)
	}
	if code := t.Mapping().States[consumed]; code != "" && status == outbox.Sent {
		codes = append(codes, code)
	}
	return codes
}

// expired writes the condition under which a row leaves. A row whose columns do not say since when it is final never does.
func (t *mapped) expired(s *table.Statement, e table.Expiry) {
	codes := t.finalCodes(e.Status)
	if len(codes) == 0 {
		s.Add("FALSE")
		return
	}
	s.Add("(", t.Column(table.StatusCode), " IN (")
	s.List(len(codes), func(i int) { t.Literal(s, codes[i]) })
	s.Add(") AND ")
	if first := t.firstFailure(); e.Retried && first != "" {
		s.Add("COALESCE(", first, " <= ", t.Now(table.NextRetryTime), " - INTERVAL ")
		s.Micros(e.Age)
		s.Add(" MICROSECOND, ")
		t.since(s, table.FinalSince(e.Status), e.Age, "FALSE")
		s.Add("))")
		return
	}
	t.since(s, table.FinalSince(e.Status), e.Age, "FALSE")
	s.Add(")")
}

// firstFailure is when a row failed first, though it was tried again since: retryFailed leaves that in the due time, which a row that is not
// PENDING has no use for. NULL where it was not tried again; "" where the table cannot say it.
func (t *mapped) firstFailure() string {
	failed := t.failedAt()
	if failed == "" || !t.Has(table.NextRetryTime) {
		return ""
	}
	return "LEAST(" + t.Column(table.NextRetryTime) + ", " + failed + ")"
}

// failedAt is the column that says when a row became FAILED, where its values can be written into the due time; "" otherwise.
func (t *mapped) failedAt() string {
	for _, role := range []table.Column{table.LastExecTime, table.UpdatedAt} {
		if t.Has(role) && t.Has(table.NextRetryTime) && t.Type(role).DataType == t.Type(table.NextRetryTime).DataType {
			return t.Column(role)
		}
	}
	return ""
}

// since writes that the first of some times which a row has lies at least a duration back. Each is compared in the zone of its own
// column.
func (t *mapped) since(s *table.Statement, roles []table.Column, age time.Duration, otherwise string) {
	s.Add("COALESCE(")
	for _, role := range roles {
		if t.Has(role) {
			t.ago(s, role, age)
			s.Add(", ")
		}
	}
	s.Add(otherwise, ")")
}

// Expire deletes or moves rows that Expired has shown, at most 500 of them, in transactions of 16 MiB at most: after a crash each is in
// exactly one table. State and age are looked at once more, under the lock of the row. It waits for no row that another session has locked.
// A row that no statement can name, or that the server does not let go, stays and is noted as refused; the others leave.
func (s departures) Expire(ctx context.Context, name string, e table.Expiry, ids []string) (table.Left, error) {
	t, err := s.table(name)
	if err == nil && len(ids) > table.MaxRows {
		err = fmt.Errorf("%d rows in one statement, %d at most", len(ids), table.MaxRows)
	}
	var left table.Left
	if err == nil {
		good, refused := named(t, ids, func(id *string) outbox.Identity { return outbox.Identity{Table: t.Name(), ID: *id} })
		for _, r := range refused {
			left.Add(table.Left{Refused: 1, ID: r.ID, Reason: r.Reason})
		}
		s.refused.add(refused...)
		var parts [][]string
		if parts, err = s.expiring(ctx, t, e, good); err == nil {
			var more table.Left
			more, err = s.expireParts(ctx, t, e, parts)
			left.Add(more)
		}
	}
	if err != nil {
		return left, fmt.Errorf("take %d expired rows out of %s: %w", len(ids), name, err)
	}
	return left, nil
}

// expiring divides rows that move into transactions of 16 MiB at most: the log has each row that is written into the other table, whole.
func (s departures) expiring(ctx context.Context, t *mapped, e table.Expiry, ids []string) ([][]string, error) {
	if len(ids) == 0 || e.Into == "" {
		return slices.Collect(slices.Chunk(ids, table.MaxRows)), nil
	}
	rows := make([]outbox.Identity, len(ids))
	for i, id := range ids {
		rows[i] = outbox.Identity{Table: t.Name(), ID: id}
	}
	sizes := make(map[outbox.Identity]int64, len(rows))
	if _, err := s.byKeyApart(rows, func(t *mapped, chunk []outbox.Identity) error { return s.sizes(ctx, t, chunk, sizes) }); err != nil {
		return nil, err
	}
	return pieces(ids, func(id string) int64 { return sizes[outbox.Identity{Table: t.Name(), ID: id}] }), nil
}

// expire splits down to the one row when the server refuses a statement for its data, and, without SKIP LOCKED, when it waited for a lock.
func (s departures) expire(ctx context.Context, t *mapped, e table.Expiry, ids []string) (left table.Left, err error) {
	if t.waits.Load() && len(ids) > unskippedRows {
		return s.expireParts(ctx, t, e, slices.Collect(slices.Chunk(ids, unskippedRows)))
	}
	var gone int
	err = s.again(ctx, func() error {
		gone, err = s.leave(ctx, t, e.Into, func(rows *table.Statement) {
			t.IDIn(rows, len(ids), func(i int) string { return ids[i] })
			rows.Add(" AND ")
			t.expired(rows, e)
		})
		return err
	})
	switch {
	case server.LockWait(err) && (len(ids) == 1 || !t.waits.Load()): // the table is being changed, or a lock is on more than rows
		return table.Left{Skipped: len(ids)}, nil
	case server.Classify(err) != server.Data && !server.LockWait(err):
		return table.Left{Rows: gone, Skipped: len(ids) - gone}, err
	case len(ids) == 1:
		s.refused.add(RefusedRow{Identity: outbox.Identity{Table: t.Name(), ID: ids[0]}, Reason: err.Error()})
		return table.Left{Refused: 1, ID: ids[0], Reason: err.Error()}, nil
	}
	return s.expireParts(ctx, t, e, [][]string{ids[:len(ids)/2], ids[len(ids)/2:]})
}

func (s departures) expireParts(ctx context.Context, t *mapped, e table.Expiry, parts [][]string) (left table.Left, err error) {
	for _, part := range parts {
		more, err := s.expire(ctx, t, e, part)
		if left.Add(more); err != nil {
			return left, err
		}
	}
	return left, nil
}

// leave is the transaction. It locks the rows that a condition names first, then copies, then deletes them.
func (s departures) leave(ctx context.Context, t *mapped, into string, where func(*table.Statement)) (gone int, err error) {
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

// lockRows returns the rows that fulfil the condition now and that no other session has locked. Without SKIP LOCKED it waits for those, and
// fails when the wait is over.
func lockRows(ctx context.Context, tx *sql.Tx, t *mapped, where func(*table.Statement)) (mine []string, err error) {
	query := table.Text("SELECT ", t.Column(table.ID), " FROM ", t.Quoted(), " FORCE INDEX (PRIMARY) WHERE ")
	where(query)
	skips := !t.waits.Load()
	query.Add(" FOR UPDATE")
	if skips {
		query.Add(" SKIP LOCKED")
	}
	var id sql.RawBytes
	err = query.Each(ctx, tx, []any{&id}, func() error {
		mine = append(mine, string(t.KeyText(table.ID, id)))
		return nil
	})
	if skips && t.withoutSkip(err) {
		return lockRows(ctx, tx, t, where)
	}
	return mine, err
}

// deleteRows deletes rows that this transaction has locked, and goes to each by the primary key. A server that is to delete a large part of the
// table's rows would read all of them, and wait for locks on rows that are not named: MariaDB from 11.0 also where the statement has an order and
// a limit. So they are found by a read that skips locked rows, as in change; a DELETE of one table cannot name its index. Without SKIP LOCKED
// it has order and limit.
func (t *mapped) deleteRows(ids []string) *table.Statement {
	key, id := t.Column(table.ID), func(i int) string { return ids[i] }
	if t.waits.Load() {
		s := table.Text("DELETE FROM ", t.Quoted(), " WHERE ")
		t.IDIn(s, len(ids), id)
		s.Add(" ORDER BY ", key, " LIMIT ", strconv.Itoa(len(ids)))
		return s
	}
	s := table.Text("DELETE ", t.Quoted(), " FROM (SELECT ", key, " AS ", freeID)
	t.FromKeys(s, len(ids), id)
	s.Add(" LIMIT ", strconv.Itoa(len(ids)), " FOR UPDATE SKIP LOCKED) AS mine STRAIGHT_JOIN ", t.Quoted(), " FORCE INDEX (PRIMARY) ON ", t.Quoted(), ".", key, " = mine.", freeID)
	return s
}

// run wants a statement to concern exactly n rows, which this transaction has locked.
func run(ctx context.Context, tx *sql.Tx, s *table.Statement, want int) error {
	result, err := tx.ExecContext(ctx, s.String(), s.Args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(want) {
		return errors.Join(err, fmt.Errorf("%d rows were changed where %d are locked; nothing was changed", n, want))
	}
	return nil
}

// TimeOfDay is the database's time in the zone of a table's DATETIME columns, since midnight.
func (s departures) TimeOfDay(ctx context.Context, name string) (time.Duration, error) {
	t, err := s.table(name)
	if err != nil {
		return 0, err
	}
	var seconds int64
	if err := s.db.QueryRowContext(ctx, "SELECT FLOOR(TIME_TO_SEC(TIME("+t.Clock()+")))").Scan(&seconds); err != nil {
		return 0, fmt.Errorf("read the database's clock: %w", err)
	}
	return time.Duration(seconds) * time.Second, nil
}

// History is the length of the server's list of changes that are not purged; false when the account may not see it.
func (s departures) History(ctx context.Context) (length int64, known bool, err error) {
	return server.HistoryLength(ctx, s.db)
}
