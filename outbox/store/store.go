// Package store runs the statements of the flow on the rows of mapped tables: find due rows, claim them, read them back, write completions, take final rows out.
//
// Guarantee: no statement changes a row but by primary key and under a guard (the status, the attempts or the claim that the relay has read), in
// autocommit statements of at most 500 rows; only what Expire and Discard take out goes in a transaction, of as many. One bad row does not affect the
// other rows of a statement. The package starts no goroutine; each method of Store may be called from several.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Store runs the flow's statements on all mapped tables. Each method may be called from several goroutines. Its parts share the tables.
type Store struct {
	*tables
	finder      // due and final rows, and the state of rows
	completions // Apply
	changes     // claims, reading back, and what sets rows back
	departures  // final rows leave
}

type (
	finder      struct{ *tables }
	completions struct{ *tables }
	changes     struct{ *tables }
	departures  struct{ *tables }
)

// tables are the mapped tables and the way to their server.
type tables struct {
	db     *sql.DB
	bound  []*table.Table
	byName map[string]*mapped
	waits  table.Waits
	may    func() bool // whether the lease is valid; nil: there is none

	refused refusals
}

// New makes a Store. db is a writing pool of server.Open: the statements rely on its session settings, found-rows semantics above all. waits keep what
// the tables have no columns for; nil keeps it in memory alone. For a relay with a lease Apply writes attempts and failures only while may
// returns true, which it calls right before each statement; nil is for a relay without a lease.
func New(db *sql.DB, of []*table.Table, waits table.Waits, may func() bool) *Store {
	if waits == nil {
		waits = &table.WaitMap{}
	}
	t := &tables{db: db, bound: table.WithStatus(of), waits: waits, may: may, byName: map[string]*mapped{}, refused: refusals{tables: map[string]*refusedTable{}}}
	for _, one := range t.bound {
		t.byName[one.Name()] = withLocks(one)
	}
	return &Store{t, finder{t}, completions{t}, changes{t}, departures{t}}
}

// mapped is a table with what its statements learn of the server. It has many methods because each writes one statement or one condition.
type mapped struct {
	*table.Table
	waits  atomic.Bool  // the server has no SKIP LOCKED: statements of many rows wait for locks
	steady atomic.Int64 // Unix nanoseconds until which no change of the zone is near
}

// withLocks returns the table with what its server can do about locks.
func withLocks(of *table.Table) *mapped {
	t := &mapped{Table: of}
	t.waits.Store(of.Waits())
	return t
}

// Tables returns the mapped tables that have a status, in their order: there are no statements on the others. The slice is shared.
func (s *tables) Tables() []*table.Table { return s.bound }

func (s *tables) table(name string) (*mapped, error) {
	t := s.byName[name]
	if t == nil {
		return nil, fmt.Errorf("table %s is not mapped: add it under tables[] of the configuration", name)
	}
	return t, nil
}

const (
	attempts = 4 // of one statement that was interrupted or met a deadlock
	rounds   = 4 // of update and locking read
)

// between attempts; jittered, so that two statements that met do not meet again.
var between = outbox.Backoff{Base: 20 * time.Millisecond, Max: 80 * time.Millisecond}

// Apply writes completions. With a nil error each completion that is not in the answer is final in the table: written now or
// before, or its row is gone. The answer also holds the rows that another session keeps locked for longer than the lock wait
// timeout: they do not keep the other rows from their status. With an error the outcome is unknown, and the same completions may
// be applied again.
func (s completions) Apply(ctx context.Context, completions []outbox.Completion) ([]outbox.WriteError, error) {
	if t := s.alike(completions); t != nil {
		refused, err := s.applyGroup(ctx, t, completions[0].Action, completions)
		if err != nil {
			return nil, err
		}
		return refused, nil
	}
	var refused []outbox.WriteError
	groups := map[*mapped]*[len(to)][]outbox.Completion{}
	for _, one := range completions {
		t, err := s.table(one.Table)
		if err == nil {
			err = t.CheckID(one.ID)
		}
		if err != nil {
			refused = append(refused, outbox.WriteError{Completion: one, Reason: err.Error()})
			continue
		}
		if groups[t] == nil {
			groups[t] = new([len(to)][]outbox.Completion)
		}
		groups[t][one.Action] = append(groups[t][one.Action], one)
	}
	var errs []error
	for _, one := range s.bound { // an error of one does not keep the others from being written
		t := s.byName[one.Name()]
		if groups[t] == nil {
			continue
		}
		for completion, group := range groups[t] {
			unwritable, err := s.applyGroup(ctx, t, outbox.Action(completion), group)
			refused = append(refused, unwritable...)
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return refused, nil
}

// alike is the table of completions that have one table and one action, as nearly all have, and whose keys it may have; otherwise nil.
func (s completions) alike(completions []outbox.Completion) *mapped {
	if len(completions) == 0 {
		return nil
	}
	first := &completions[0]
	t := s.byName[first.Table]
	for i := range completions {
		if c := &completions[i]; t == nil || c.Table != first.Table || c.Action != first.Action || t.CheckID(c.ID) != nil {
			return nil
		}
	}
	return t
}

// applyGroup writes one action to rows of one table, in as many statements as it takes; an error ends it.
func (s completions) applyGroup(ctx context.Context, t *mapped, action outbox.Action, rows []outbox.Completion) (refused []outbox.WriteError, err error) {
	for chunk := range slices.Chunk(rows, table.MaxRows) {
		unwritable, err := s.applyChunk(ctx, t, action, chunk)
		refused = append(refused, unwritable...)
		if err != nil {
			return refused, fmt.Errorf("write %s to %d rows of %s: %w", action, len(chunk), t.Name(), err)
		}
	}
	return refused, nil
}

// applyChunk writes one completion to rows of one table, and keeps what the table has no columns for.
func (s completions) applyChunk(ctx context.Context, t *mapped, action outbox.Action, rows []outbox.Completion) ([]outbox.WriteError, error) {
	if err := s.keep(ctx, t, action, rows); err != nil {
		return nil, err
	}
	refused, err := s.settle(ctx, t, action, rows)
	if errors.Is(err, errFenced) {
		return s.dropFenced(ctx, t, rows)
	}
	if err == nil {
		err = s.forget(t, action, rows)
	}
	return refused, err
}

// settle brings one chunk to its end: update those that are free, and where fewer rows matched than were named, look which of them are still to be
// changed. Rows that another session has locked are tried for about a second and then handed back.
func (s completions) settle(ctx context.Context, t *mapped, completion outbox.Action, rows []outbox.Completion) ([]outbox.WriteError, error) {
	var refused []outbox.WriteError
	for round := 0; len(rows) > 0; round++ {
		left, held, err := s.attempt(ctx, t, completion, rows)
		switch {
		case server.Classify(err) == server.Data:
			more, err := s.split(ctx, t, completion, rows, err)
			return append(refused, more...), err
		case server.LockWait(err): // for what no look at the rows shows: a range of an index, or the table
			if left, held, err = s.remaining(ctx, t, rows); err != nil {
				return nil, err
			}
			return append(refused, behindLock(append(left, held...))...), nil
		case err != nil:
			return nil, err
		}
		if round+1 >= rounds {
			refused = append(refused, unwritable(left, "the row still waits for its status after several updates: its guard and its content do not agree")...)
			left = nil
		}
		if len(held) > 0 && t.waits.Load() { // the statements have waited, and others wait behind them
			refused = append(refused, behindLock(held)...)
			held = nil
		}
		if round+1 == lockRounds {
			return append(refused, behindLock(held)...), nil
		}
		if len(held) > 0 {
			if err := sleep(ctx, lockPauses.Delay(round, rand.Float64())); err != nil {
				return nil, err
			}
		}
		rows = append(left, held...)
	}
	return refused, nil
}

// attempt updates the rows and returns those that are still to be changed, and those that another session has locked.
func (s completions) attempt(ctx context.Context, t *mapped, completion outbox.Action, rows []outbox.Completion) (left, held []outbox.Completion, err error) {
	c := freeChange[outbox.Completion]{
		tables: s.tables, t: t,
		identity: func(c *outbox.Completion) outbox.Identity { return c.Identity },
		make:     func(some []outbox.Completion) *table.Statement { return t.update(completion, some) },
		run:      func(st *table.Statement) (int64, error) { return s.execFenced(ctx, completion, st) },
	}
	matched, waited, err := c.change(ctx, rows)
	if err != nil || matched == int64(len(rows)) {
		return nil, nil, err
	}
	if waited { // a look that waits, too, would take a second for each locked row
		held, err = s.unwritten(ctx, t, rows)
		return nil, held, err
	}
	return s.remaining(ctx, t, rows)
}

// split finds the rows for whose data the statement failed, so that they harm only themselves.
func (s completions) split(ctx context.Context, t *mapped, completion outbox.Action, rows []outbox.Completion, cause error) ([]outbox.WriteError, error) {
	if len(rows) == 1 {
		return unwritable(rows, cause.Error()), nil
	}
	left, err := s.settle(ctx, t, completion, rows[:len(rows)/2])
	if err != nil {
		return nil, err
	}
	right, err := s.settle(ctx, t, completion, rows[len(rows)/2:])
	return append(left, right...), err
}

func unwritable(rows []outbox.Completion, reason string) []outbox.WriteError {
	out := make([]outbox.WriteError, len(rows))
	for i, row := range rows {
		out[i] = outbox.WriteError{Completion: row, Reason: reason}
	}
	return out
}

// remaining are the rows that their completion would still change, and those that another session has locked. Rows that are gone or final are
// in neither.
func (s completions) remaining(ctx context.Context, t *mapped, rows []outbox.Completion) (left, held []outbox.Completion, err error) {
	found, held, err := s.look(ctx, t, rows)
	if err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		if c, ok := found[row.Identity]; ok && t.unfinished(row, c) {
			left = append(left, row)
		}
	}
	return left, held, nil
}

// unwritten are the rows that a plain read shows without their status, or does not show: they may not be visible yet (A35).
func (s completions) unwritten(ctx context.Context, t *mapped, rows []outbox.Completion) (all []outbox.Completion, err error) {
	found, err := s.readLocked(ctx, t, rows, "")
	for _, row := range rows {
		if c, ok := found[row.Identity]; !ok || t.unfinished(row, c) {
			all = append(all, row)
		}
	}
	return all, err
}

func (s *tables) exec(ctx context.Context, st *table.Statement) (matched int64, err error) {
	text := st.String()
	err = s.again(ctx, func() error {
		result, err := s.db.ExecContext(ctx, text, st.Args...)
		if err != nil {
			return err
		}
		matched, err = result.RowsAffected()
		return err
	})
	return matched, err
}

// again repeats a statement that was interrupted or met a deadlock. A lock that was waited for in vain is the caller's: while a
// statement waits, others wait for the locks that it holds already.
func (s *tables) again(ctx context.Context, run func() error) error {
	for attempt := 0; ; attempt++ {
		err := run()
		if server.Classify(err) != server.Transient || server.LockWait(err) || attempt+1 == attempts {
			return err
		}
		if ended := sleep(ctx, between.Delay(attempt, rand.Float64())); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
