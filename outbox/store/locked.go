package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// An UPDATE of many rows holds the locks of the first ones while it waits for the lock of a later one. When the transaction that holds that
// lock then wants one of the first rows, the server ends one of the two, and it ends the one that has changed less: the application's. So no
// statement here waits for the lock of a row while it holds others.
//
// On MySQL a statement locks the rows that are free, by a read inside it that skips locked ones (SKIP LOCKED, MySQL 8.0.1), and changes those. It is
// one statement, because a transaction of several would cost a round trip for each.
//
// MariaDB must not be given that statement. It ends with a segmentation fault (10.11.19, in Multiupdate_prelocking_strategy::handle_end) when an UPDATE
// that joins a table to a derived one has to open its tables once more, which is so when a change of a table that a trigger writes meets it: the end
// of an online schema change. There an UPDATE of one table fails at the first locked row; a read that skips locked rows (MariaDB 10.6) shows which are
// free, and the UPDATE is repeated for these.
//
// A server without SKIP LOCKED (table.Waits, or a statement's answer after the server has become another one) is given statements of few
// rows: the application's transaction is rarely caught between them.

// unskippedRows is how many rows one statement names on a server without SKIP LOCKED.
const unskippedRows = 20

// freeID is the name of the key among the rows that are free. No table has such a column.
const freeID = "canal_outbox_free_id"

// change begins an UPDATE of those of n rows that are free, up to the first assignment. where continues it behind the last one.
func (t *mapped) change(s *table.Statement, n int, id func(i int) string) {
	if t.plain() {
		s.Add("UPDATE ", t.Quoted(), " FORCE INDEX (PRIMARY) SET ")
		return
	}
	key := t.Column(table.ID)
	s.Add("UPDATE (SELECT ", key, " AS ", freeID)
	t.FromKeys(s, n, id)
	s.Add(" LIMIT ", strconv.Itoa(n), " FOR UPDATE SKIP LOCKED) AS free STRAIGHT_JOIN ", // the limit keeps MySQL from merging it into the UPDATE, which then waits
		t.Quoted(), " FORCE INDEX (PRIMARY) ON ", t.Quoted(), ".", key, " = free.", freeID, " SET ")
}

// plain reports that an UPDATE names the rows itself.
func (t *mapped) plain() bool { return t.MariaDB() || t.waits.Load() }

// where begins the condition of a statement of change; a condition follows.
func (t *mapped) where(s *table.Statement, n int, id func(i int) string) {
	s.Add(" WHERE ")
	if t.plain() {
		t.IDIn(s, n, id)
		s.Add(" AND ")
	}
}

const (
	syntaxError = 1064 // PARSE_ERROR
	lockedRow   = 3572 // LOCK_NOWAIT, MySQL; MariaDB answers LOCK_WAIT_TIMEOUT
)

// withoutSkip reports whether a statement failed because the server has no SKIP LOCKED; from then on statements of the table do without.
func (t *mapped) withoutSkip(err error) bool {
	if server.Code(err) != syntaxError {
		return false
	}
	t.waits.Store(true)
	return true
}

// changeFree changes those of the rows that no other session has locked, by a statement of change, and returns how many match its condition.
func changeFree[R any](ctx context.Context, s *tables, t *mapped, rows []R, identity func(*R) outbox.Identity, make func([]R) *table.Statement) (matched int64, err error) {
	c := freeChange[R]{tables: s, t: t, identity: identity, make: make, run: func(st *table.Statement) (int64, error) { return s.exec(ctx, st) }}
	matched, _, err = c.change(ctx, rows)
	return matched, err
}

// freeChange is a change of rows of one table that are free.
type freeChange[R any] struct {
	*tables
	t        *mapped
	identity func(*R) outbox.Identity
	make     func([]R) *table.Statement            // a statement of mapped.change
	run      func(*table.Statement) (int64, error) // returns how many rows match its condition
}

// change returns how many rows match, and whether a statement has waited for a lock in vain, whose rows are left out then.
func (c freeChange[R]) change(ctx context.Context, rows []R) (matched int64, waited bool, err error) {
	if !c.t.waits.Load() {
		if c.t.MariaDB() {
			matched, err = c.changeNow(ctx, rows)
		} else {
			matched, err = c.run(c.make(rows))
		}
		if !c.t.withoutSkip(err) {
			return matched, false, err
		}
		matched = 0
	}
	for chunk := range slices.Chunk(rows, unskippedRows) {
		n, err := c.run(c.make(chunk))
		var all bool
		if server.LockWait(err) {
			waited = true
			n, all, err = changeEach(c.run, len(chunk), func(i int) *table.Statement { return c.make(chunk[i : i+1]) })
		}
		if matched += n; err != nil || all {
			return matched, waited, err
		}
	}
	return matched, waited, nil
}

const (
	nowTries = 3 // to change rows without a wait
	// now lets a statement of MariaDB fail where it would wait for the lock of a row.
	now = "SET STATEMENT innodb_lock_wait_timeout=0 FOR "
	// nowTable lets one fail where it would wait for the lock of the table.
	nowTable = "SET STATEMENT lock_wait_timeout=0 FOR "
)

// changeNow is the change on MariaDB. Where a lock is in the way that no look at the rows shows, of a range of an index or of a row that a trigger
// changes, it waits for that as long as the session does.
func (c freeChange[R]) changeNow(ctx context.Context, rows []R) (matched int64, err error) {
	for range nowTries {
		st := c.make(rows)
		first := table.Text(now, st.String())
		first.Args = st.Args
		if matched, err = c.run(first); !server.LockWait(err) {
			return matched, err
		}
		if rows, err = c.free(ctx, rows); err != nil || len(rows) == 0 {
			return 0, err
		}
	}
	return c.run(c.make(rows))
}

// free are the rows that no other session has locked now.
func (c freeChange[R]) free(ctx context.Context, rows []R) (free []R, err error) {
	query := table.Text(nowTable, "SELECT ", c.t.Column(table.ID))
	c.t.FromKeys(query, len(rows), func(i int) string { return c.identity(&rows[i]).ID })
	query.Add(" FOR UPDATE SKIP LOCKED")
	unlocked := map[string]bool{}
	err = c.again(ctx, func() error {
		var id sql.RawBytes
		return query.Each(ctx, c.db, []any{&id}, func() error {
			unlocked[string(c.t.KeyText(table.ID, id))] = true
			return nil
		})
	})
	for i := range rows {
		if unlocked[c.identity(&rows[i]).ID] {
			free = append(free, rows[i])
		}
	}
	return free, err
}

// firstLocked is how many rows must be locked, with none before them that is free, to take all for locked: the table is.
const firstLocked = 3

// changeEach runs a statement for each row and leaves out those that another session has locked. It ends early where all seem to be.
func changeEach(run func(*table.Statement) (int64, error), n int, make func(i int) *table.Statement) (matched int64, all bool, err error) {
	locked := 0
	for i := range n {
		one, err := run(make(i))
		if err != nil && !server.LockWait(err) {
			return matched, false, err
		}
		matched += one
		if err != nil {
			locked++
		}
		if locked == firstLocked && locked == i+1 {
			return matched, true, nil
		}
	}
	return matched, false, nil
}

// lockPauses are between attempts to write rows that another session has locked, about a second together. As a rule that session is the
// transaction that has just committed the row: its event reaches us before it has let the lock go (A35).
var lockPauses = outbox.Backoff{Base: 20 * time.Millisecond, Max: 320 * time.Millisecond}

const lockRounds = 7 // attempts to write a row that is locked

// look reads rows without waiting for a lock. found are those that are there, held those that another session has locked: with the first of
// them nothing is known of the others, and those that are not there count as held. A plain read would not do: an event reaches us before its
// row is visible (A35).
func (s completions) look(ctx context.Context, t *mapped, rows []outbox.Completion) (found map[outbox.Identity]outbox.Candidate, held []outbox.Completion, err error) {
	if t.waits.Load() {
		return s.lookAndWait(ctx, t, rows)
	}
	all, err := s.readLocked(ctx, t, rows, " FOR UPDATE NOWAIT")
	if err == nil {
		return all, nil, nil
	}
	if t.withoutSkip(err) {
		return s.lookAndWait(ctx, t, rows)
	}
	if !server.LockWait(err) && server.Code(err) != lockedRow {
		return nil, nil, err
	}
	if found, err = s.readLocked(ctx, t, rows, " FOR UPDATE SKIP LOCKED"); err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		if _, free := found[row.Identity]; !free {
			held = append(held, row)
		}
	}
	return found, held, nil
}

// lookAndWait is look on a server without SKIP LOCKED: it waits for a lock, for few rows at a time, and where one of those is locked for each of
// them.
func (s completions) lookAndWait(ctx context.Context, t *mapped, rows []outbox.Completion) (found map[outbox.Identity]outbox.Candidate, held []outbox.Completion, err error) {
	found = map[outbox.Identity]outbox.Candidate{}
	for rest := slices.Collect(slices.Chunk(rows, unskippedRows)); len(rest) > 0; rest = rest[1:] {
		some, err := s.readLocked(ctx, t, rest[0], " LOCK IN SHARE MODE")
		if server.LockWait(err) {
			if err := s.tableIsFree(ctx, t); err != nil {
				return nil, nil, err
			}
			if len(rest[0]) == 1 {
				held = append(held, rest[0]...)
			} else {
				rest = append(rest, slices.Collect(slices.Chunk(rest[0], 1))...)
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(found, some)
	}
	return found, held, nil
}

// tableIsFree fails where the lock of the table is held: no read of it comes through then.
func (s completions) tableIsFree(ctx context.Context, t *mapped) error {
	var one int
	return table.Text("SELECT 1 FROM ", t.Quoted(), " LIMIT 1").Each(ctx, s.db, []any{&one}, func() error { return nil })
}

// readLocked reads rows by a SELECT that ends in how: a lock and what it does where another session has one; "" for none.
func (s completions) readLocked(ctx context.Context, t *mapped, rows []outbox.Completion, how string) (map[outbox.Identity]outbox.Candidate, error) {
	query := t.selectState()
	t.FromKeys(query, len(rows), func(i int) string { return rows[i].ID })
	query.Add(how)
	found := map[outbox.Identity]outbox.Candidate{}
	err := s.again(ctx, func() error {
		candidates, err := s.candidates(ctx, t, query)
		for _, c := range candidates {
			found[c.Identity] = c
		}
		return err
	})
	return found, err
}

func behindLock(rows []outbox.Completion) []outbox.WriteError {
	out := unwritable(rows, "another session holds the lock of the row")
	for i := range out {
		out[i].Retryable = true
	}
	return out
}
