package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Store runs the statements on all mapped tables. Each method may be called from several goroutines.
type Store struct {
	db     *sql.DB
	tables []*Table
	waits  Waits
	may    func() bool // whether the lease is valid; nil: there is none
	byName map[string]*Table

	maxCount  int64 // MaxCount
	scanLimit int64 // scanLimit
	pages     pages

	mu    sync.Mutex
	ahead map[string]firstSeen // by table, for the age of rows that were made ahead of the clock
}

// New makes a Store. db is a writing pool of server.Open: the statements rely on its session settings, found-rows
// semantics above all. What a table has no columns for is kept in memory alone.
func New(db *sql.DB, tables []*Table) *Store { return NewKeeping(db, tables, &WaitMap{}) }

// NewKeeping is New with waits that may outlive the process.
func NewKeeping(db *sql.DB, tables []*Table, waits Waits) *Store {
	return NewFenced(db, tables, waits, nil)
}

// NewFenced is NewKeeping for a relay with a lease: Apply writes attempts and failures only while may returns true, which it calls right
// before each statement.
func NewFenced(db *sql.DB, tables []*Table, waits Waits, may func() bool) *Store {
	s := &Store{
		db: db, tables: WithStatus(tables), waits: waits, may: may, byName: map[string]*Table{}, maxCount: MaxCount, scanLimit: scanLimit, pages: defaultPages,
		ahead: map[string]firstSeen{},
	}
	for _, t := range s.tables {
		s.byName[t.name] = t
	}
	return s
}

// Tables returns the mapped tables that have a status, in their order: there are no statements on the others. The slice is shared.
func (s *Store) Tables() []*Table { return s.tables }

func (s *Store) table(name string) (*Table, error) {
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
// before, or its row is gone. Rows whose lock somebody holds for longer than the session waits are in the answer, too: they
// keep none of the others from their status. With an error nothing is known, and the same completions may be applied again.
func (s *Store) Apply(ctx context.Context, completions []outbox.Completion) ([]outbox.WriteError, error) {
	if t := s.alike(completions); t != nil {
		refused, err := s.applyGroup(ctx, t, completions[0].Action, completions)
		if err != nil {
			return nil, err
		}
		return refused, nil
	}
	var refused []outbox.WriteError
	groups := map[*Table]*[len(to)][]outbox.Completion{}
	for _, one := range completions {
		t, err := s.table(one.Table)
		if err == nil {
			err = t.checkID(one.ID)
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
	for _, t := range s.tables { // every table has its turn, whatever happens to the others
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
func (s *Store) alike(completions []outbox.Completion) *Table {
	if len(completions) == 0 {
		return nil
	}
	first := &completions[0]
	t := s.byName[first.Table]
	for i := range completions {
		if c := &completions[i]; t == nil || c.Table != first.Table || c.Action != first.Action || t.checkID(c.ID) != nil {
			return nil
		}
	}
	return t
}

// applyGroup writes one action to rows of one table, in as many statements as it takes; an error ends it.
func (s *Store) applyGroup(ctx context.Context, t *Table, action outbox.Action, rows []outbox.Completion) (refused []outbox.WriteError, err error) {
	for chunk := range slices.Chunk(rows, maxRows) {
		unwritable, err := s.applyChunk(ctx, t, action, chunk)
		refused = append(refused, unwritable...)
		if err != nil {
			return refused, fmt.Errorf("write %s to %d rows of %s: %w", action, len(chunk), t.name, err)
		}
	}
	return refused, nil
}

// applyChunk writes one completion to rows of one table, and keeps what the table has no columns for.
func (s *Store) applyChunk(ctx context.Context, t *Table, action outbox.Action, rows []outbox.Completion) ([]outbox.WriteError, error) {
	if err := s.keep(t, action, rows); err != nil {
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

// settle brings one chunk to its end: update, and where fewer rows matched than were named, ask under a lock which of
// them are still to be changed.
func (s *Store) settle(ctx context.Context, t *Table, completion outbox.Action, rows []outbox.Completion) ([]outbox.WriteError, error) {
	var locked []outbox.WriteError
	waited := false
	for range rounds {
		left, err := s.attempt(ctx, t, completion, rows)
		switch {
		case server.Classify(err) == server.Data:
			refused, err := s.split(ctx, t, completion, rows, err)
			return append(locked, refused...), err
		case server.LockWait(err) && waited: // for what no look at the rows shows: a range of an index, or a new lock
			return append(locked, behindLock(rows)...), nil
		case server.LockWait(err):
			waited = true
			var held []outbox.Completion
			if left, held, err = apart(ctx, s, t, rows, func(row *outbox.Completion) string { return row.ID }, err); err != nil {
				return nil, err
			}
			locked = append(locked, behindLock(held)...)
		case err != nil:
			return nil, err
		}
		if rows = left; len(rows) == 0 {
			return locked, nil
		}
	}
	return append(locked, unwritable(rows, "the row still waits for its status after several updates: its guard and its content do not agree")...), nil
}

// attempt updates the rows and returns those that are still to be changed.
func (s *Store) attempt(ctx context.Context, t *Table, completion outbox.Action, rows []outbox.Completion) ([]outbox.Completion, error) {
	matched, err := s.execFenced(ctx, completion, t.update(completion, rows))
	if err != nil || matched == int64(len(rows)) {
		return nil, err
	}
	return s.unfinished(ctx, t, rows)
}

// split finds the rows for whose data the statement failed, so that they harm only themselves.
func (s *Store) split(ctx context.Context, t *Table, completion outbox.Action, rows []outbox.Completion, cause error) ([]outbox.WriteError, error) {
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

// unfinished reads the rows under a shared lock, which waits for whoever is changing them, and returns those that the
// completion would still change. Rows that are gone or final are settled. A plain read would not do: an event reaches us
// before its row is visible (A35).
func (s *Store) unfinished(ctx context.Context, t *Table, rows []outbox.Completion) ([]outbox.Completion, error) {
	query := t.selectState()
	query.add(" FROM ", t.quoted, " FORCE INDEX (PRIMARY) WHERE ")
	t.idIn(query, len(rows), func(i int) string { return rows[i].ID })
	query.add(" LOCK IN SHARE MODE")
	found := map[outbox.Identity]outbox.Candidate{}
	err := s.again(ctx, func() error {
		candidates, err := s.candidates(ctx, t, query)
		for _, c := range candidates {
			found[c.Identity] = c
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var left []outbox.Completion
	for _, row := range rows {
		if c, ok := found[row.Identity]; ok && t.unfinished(row, c) {
			left = append(left, row)
		}
	}
	return left, nil
}

func (s *Store) exec(ctx context.Context, st *statement) (matched int64, err error) {
	text := st.text.String()
	err = s.again(ctx, func() error {
		result, err := s.db.ExecContext(ctx, text, st.args...)
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
func (s *Store) again(ctx context.Context, run func() error) error {
	for attempt := 0; ; attempt++ {
		err := run()
		if server.Classify(err) != server.Transient || server.LockWait(err) || attempt+1 == attempts {
			return err
		}
		pause := time.NewTimer(between.Delay(attempt, rand.Float64()))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}
