package store

import (
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// One row must not stop a statement that names many. A statement on many rows leaves a row out whose key no statement can name (checkID),
// whose columns cannot be read, or for whose data the server refuses the statement; the other rows are handled. What is left out is noted
// here with its key and the cause, so that the log and the status show it.

// RefusedRow is a row that a statement left out, and why.
type RefusedRow struct {
	outbox.Identity
	Reason string
	At     time.Time
}

const (
	maxRefused  = 1000             // rows of a table that are remembered
	refusedLog  = time.Minute      // between calls of OnRefused for one table
	unreadFor   = time.Minute      // for which a row that cannot be read counts as waiting
	refusedTime = 10 * time.Minute // after which a row is forgotten
)

// refusals are the rows that were left out lately, by table.
type refusals struct {
	mu     sync.Mutex
	tables map[string]*refusedTable
	told   func(last RefusedRow, rows int)
}

type refusedTable struct {
	rows  map[outbox.Identity]RefusedRow
	fresh map[outbox.Identity]bool // since the last call of told
	last  RefusedRow
	told  time.Time
}

// OnRefused sets what is called when rows are left out, at most once a minute for each table: with the last of them, and with the number of
// rows since the call before. It is set before the Store is used.
func (s *tables) OnRefused(told func(last RefusedRow, rows int)) { s.refused.told = told }

// Refused returns the last row of a table that was left out within a time, and the number of these rows; 0 when there is none. It counts no
// more than 1000.
func (s *tables) Refused(name string, within time.Duration) (last RefusedRow, rows int) {
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	t := s.refused.tables[name]
	if t == nil {
		return last, 0
	}
	for _, r := range t.rows {
		if time.Since(r.At) > within {
			continue
		}
		rows++
		if r.At.After(last.At) || r.At.Equal(last.At) && r.ID > last.ID {
			last = r
		}
	}
	return last, rows
}

// add notes rows that were left out.
func (r *refusals) add(rows ...RefusedRow) {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Table == rows[0].Table {
			n++
		}
		r.addOf(rows[0].Table, rows[:n])
		rows = rows[n:]
	}
}

func (r *refusals) addOf(name string, rows []RefusedRow) {
	r.mu.Lock()
	now := time.Now()
	t := r.tables[name]
	if t == nil {
		t = &refusedTable{rows: map[outbox.Identity]RefusedRow{}, fresh: map[outbox.Identity]bool{}}
		r.tables[name] = t
	}
	for id, one := range t.rows {
		if now.Sub(one.At) > refusedTime {
			delete(t.rows, id)
		}
	}
	for _, one := range rows {
		one.At = now
		if _, known := t.rows[one.Identity]; known || len(t.rows) < maxRefused {
			t.rows[one.Identity], t.fresh[one.Identity] = one, true
		}
		t.last = one
	}
	told, last, n := r.told, t.last, max(1, len(t.fresh))
	due := told != nil && now.Sub(t.told) >= refusedLog
	if due {
		t.told = now
		clear(t.fresh)
	}
	r.mu.Unlock()
	if due {
		told(last, n)
	}
}

// isolate calls run with rows. Where the server refuses the statement for the data of one of them, the rows are divided until that row is
// alone: it is in the answer, and run is called with the others. run has no effect when it fails. Any other error ends it.
func isolate[R any](rows []R, identity func(*R) outbox.Identity, run func([]R) error) (refused []RefusedRow, err error) {
	err = run(rows)
	switch {
	case server.Classify(err) != server.Data:
		return nil, err
	case len(rows) == 1:
		return []RefusedRow{{Identity: identity(&rows[0]), Reason: err.Error()}}, nil
	}
	left, err := isolate(rows[:len(rows)/2], identity, run)
	if err != nil {
		return left, err
	}
	right, err := isolate(rows[len(rows)/2:], identity, run)
	return append(left, right...), err
}

// named divides rows of the table into those whose keys a statement can name, and the others. It copies only where there are others.
func named[R any](t *mapped, rows []R, identity func(*R) outbox.Identity) (good []R, refused []RefusedRow) {
	for i := range rows {
		id := identity(&rows[i])
		err := t.CheckID(id.ID)
		switch {
		case err != nil:
			if refused == nil {
				good = slices.Clone(rows[:i])
			}
			refused = append(refused, RefusedRow{Identity: id, Reason: err.Error()})
		case refused != nil:
			good = append(good, rows[i])
		}
	}
	if refused == nil {
		good = rows
	}
	return good, refused
}

func ownIdentity(id *outbox.Identity) outbox.Identity { return *id }

func rowOf(c *outbox.Candidate) outbox.Identity { return c.Identity }

// unreadable makes a candidate of a row whose state cannot be used. It counts as PENDING and as refused before, and waits for a minute: no
// statement claims it, its key stays blocked, and it is looked at again. Rows with a final status keep it.
func unreadable(c *outbox.Candidate) {
	if c.Status != outbox.Pending && c.Status != outbox.Sending {
		return
	}
	c.Status, c.Waiting, c.DueInMilli = outbox.Pending, true, unreadFor.Milliseconds()
	c.RetryCount = max(1, c.RetryCount)
}
