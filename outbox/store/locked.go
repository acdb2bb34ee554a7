package store

import (
	"context"
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
// statement here waits for the lock of a row while it holds others. A statement locks the rows that are free, by a read inside it that skips
// locked ones (SKIP LOCKED: MySQL 8.0.1, MariaDB 10.6), and changes those. It is one statement, because a transaction of several would
// cost a round trip for each.
//
// A server without SKIP LOCKED (table.Waits, or a statement's answer after the server has become another one) is given statements of few
// rows: the application's transaction is rarely caught between them.

// unskippedRows is how many rows one statement names on a server without SKIP LOCKED.
const unskippedRows = 20

// freeID is the name of the key among the rows that are free. No table has such a column.
const freeID = "canal_outbox_free_id"

// change begins an UPDATE of those of n rows that are free, up to the first assignment. where continues it behind the last one.
func (t *mapped) change(s *table.Statement, n int, id func(i int) string) {
	if t.waits.Load() {
		s.Add("UPDATE ", t.Quoted(), " FORCE INDEX (PRIMARY) SET ")
		return
	}
	key := t.Column(table.ID)
	s.Add("UPDATE (SELECT ", key, " AS ", freeID)
	t.FromKeys(s, n, id)
	s.Add(" LIMIT ", strconv.Itoa(n), " FOR UPDATE SKIP LOCKED) AS free STRAIGHT_JOIN ", // the limit keeps MySQL from merging it into the UPDATE, which then waits
		t.Quoted(), " FORCE INDEX (PRIMARY) ON ", t.Quoted(), ".", key, " = free.", freeID, " SET ")
}

// where begins the condition of a statement of change; a condition follows.
func (t *mapped) where(s *table.Statement, n int, id func(i int) string) {
	s.Add(" WHERE ")
	if t.waits.Load() {
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
func changeFree[R any](ctx context.Context, s *tables, t *mapped, rows []R, make func([]R) *table.Statement) (matched int64, err error) {
	return changeBy(func(st *table.Statement) (int64, error) { return s.exec(ctx, st) }, t, rows, make)
}

// changeBy is changeFree with what runs a statement.
func changeBy[R any](run func(*table.Statement) (int64, error), t *mapped, rows []R, make func([]R) *table.Statement) (matched int64, err error) {
	if !t.waits.Load() {
		matched, err = run(make(rows))
		if !t.withoutSkip(err) {
			return matched, err
		}
	}
	for chunk := range slices.Chunk(rows, unskippedRows) {
		n, err := run(make(chunk))
		var all bool
		if server.LockWait(err) {
			n, all, err = changeEach(run, len(chunk), func(i int) *table.Statement { return make(chunk[i : i+1]) })
		}
		if matched += n; err != nil || all {
			return matched, err
		}
	}
	return matched, nil
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
