package table

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// DueQuery says which rows a sweep looks for. All times are compared by the database's clock.
type DueQuery struct {
	Threshold     time.Duration // PENDING rows without a due time: at least this old, or made ahead of the clock
	Horizon       time.Duration // PENDING rows with a due time: due within this from now; those not due yet are Waiting
	ExpiredClaims time.Duration // SENDING rows: claimed at least this long ago, ahead of the clock, or at no time; 0 takes every one
	Limit         int           // rows of one page; 0 means 500
}

// claimAhead is how far ahead of the database's clock a claim may lie that is taken for one of now: two servers of one cluster
// differ by so much after a failover. A claim further ahead is no sign of a sender that is alive: the clock was set back after it
// (or summer time ended, where the zone has one), or somebody wrote it. Its row would stay at SENDING until the clock is there.
const claimAhead = 5 * time.Second

// Cursor is a place in the list of due rows. The zero value is its beginning.
type Cursor struct {
	phase phase
	due   string // due time of the last row, as text of the database
	id    string // its primary key; "" at the beginning of a phase
}

// Done reports whether the list has been read to its end.
func (c Cursor) Done() bool { return c.phase == phases }

// phase is one stretch of the index (status, due time, id): within it, rows come in the order of the index, so that each
// page begins where the one before ended.
type phase uint8

const (
	pendingNoDue phase = iota
	pendingDue
	sendingNoDue
	sendingDue
	phases
)

// Due returns a page of identities, in the order of the index, and where the next page begins. Rows are found through
// the status index, never by an offset and never above a remembered id: lower ids commit later (D10). Rows that appear
// behind the cursor meanwhile are for the next sweep. A page may be empty before the end.
//
// Where no column is mapped to CreatedAt the age of a row is unknown and Threshold does not apply: whoever wants old rows
// only has to see a row twice.
func (s *Store) Due(ctx context.Context, table string, after Cursor, q DueQuery) ([]outbox.Candidate, Cursor, error) {
	t, err := s.table(table)
	if err != nil {
		return nil, after, err
	}
	if after = t.next(after); after.Done() {
		return nil, after, nil
	}
	if q.Limit <= 0 {
		q.Limit = maxRows
	}
	candidates, due, err := s.candidatesDue(ctx, t, t.due(after, q))
	if t.forgetIndex(err) {
		candidates, due, err = s.candidatesDue(ctx, t, t.due(after, q))
	}
	if err != nil {
		return nil, after, fmt.Errorf("look for due rows of %s: %w", table, err)
	}
	if len(candidates) < q.Limit {
		return candidates, t.next(Cursor{phase: after.phase + 1}), nil
	}
	return candidates, Cursor{phase: after.phase, due: due, id: candidates[len(candidates)-1].ID}, nil
}

// next passes over the stretches that a table without due times or without claims does not have.
func (t *Table) next(at Cursor) Cursor {
	for !at.Done() && t.lacks(at.phase) {
		at = Cursor{phase: at.phase + 1}
	}
	return at
}

func (t *Table) lacks(p phase) bool {
	due := p == pendingDue || p == sendingDue
	return due && !t.has(NextRetryTime) || p >= sendingNoDue && !t.claims()
}

// forgetIndex reports whether a query failed because the index it forced is gone; from then on the server chooses.
func (t *Table) forgetIndex(err error) bool {
	const noSuchKey = 1176 // KEY_DOES_NOT_EXITS
	if server.Code(err) != noSuchKey {
		return false
	}
	t.sweepIndex.Store(nil)
	return true
}

func (t *Table) forceIndex(s *statement) {
	if index := t.sweepIndex.Load(); index != nil {
		s.add(" FORCE INDEX (", quote(*index), ")")
	}
}

// due is the query of one page.
func (t *Table) due(after Cursor, q DueQuery) *statement {
	s := t.selectState()
	s.add(" FROM ", t.quoted)
	t.forceIndex(s)
	s.add(" WHERE ", t.column(StatusCode), " = ")
	if after.phase <= pendingDue {
		t.code(s, outbox.Pending)
	} else {
		t.code(s, outbox.Sending)
	}
	switch after.phase {
	case pendingNoDue, sendingNoDue:
		if t.has(NextRetryTime) {
			s.add(" AND ", t.column(NextRetryTime), " IS NULL")
		}
		if after.id != "" {
			s.add(" AND ", t.column(ID), " > ")
			t.id(s, after.id)
		}
	case pendingDue:
		s.add(" AND ", t.column(NextRetryTime), " <= ", t.now(NextRetryTime), " + INTERVAL ")
		s.micros(q.Horizon)
		s.add(" MICROSECOND")
		t.behind(s, after)
	case sendingDue:
		s.add(" AND ", t.column(NextRetryTime), " IS NOT NULL")
		t.behind(s, after)
	}
	switch {
	case after.phase == pendingNoDue && q.Threshold > 0 && t.has(CreatedAt):
		// A time ahead of the clock says nothing about the age (an application that writes the time of another zone), so the row
		// counts as old, as one without a time does. The position rule decides whether it is published.
		s.add(" AND (", t.column(CreatedAt), " IS NULL OR ", t.column(CreatedAt), " > ", t.now(CreatedAt), " OR ")
		t.ago(s, CreatedAt, q.Threshold)
		s.add(")")
	case after.phase >= sendingNoDue && q.ExpiredClaims > 0:
		s.add(" AND (", t.column(LastExecTime), " IS NULL OR ")
		t.ago(s, LastExecTime, q.ExpiredClaims)
		s.add(" OR ", t.column(LastExecTime), " > ", t.now(LastExecTime), " + INTERVAL ")
		s.micros(claimAhead)
		s.add(" MICROSECOND)")
	}
	s.add(" ORDER BY ")
	if after.phase == pendingDue || after.phase == sendingDue {
		s.add(t.column(NextRetryTime), ", ")
	}
	s.add(t.column(ID), " LIMIT ", strconv.Itoa(q.Limit))
	return s
}

// behind writes the keyset condition. A comparison of rows would say it shorter, but no server makes a range of it.
func (t *Table) behind(s *statement, after Cursor) {
	if after.id == "" {
		return
	}
	due, id := t.column(NextRetryTime), t.column(ID)
	s.add(" AND (", due, " > ")
	s.string(after.due)
	s.add(" OR ", due, " = ")
	s.string(after.due)
	s.add(" AND ", id, " > ")
	t.id(s, after.id)
	s.add(")")
}

// ago writes that a time lies at least so long back.
func (t *Table) ago(s *statement, role Column, d time.Duration) {
	s.add(t.column(role), " <= ", t.now(role), " - INTERVAL ")
	s.micros(d)
	s.add(" MICROSECOND")
}
