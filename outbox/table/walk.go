package table

import (
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A query of many rows of a status walks over an index, page by page: a list of ranges, a cursor in them, and the parts of the query of one page. No
// page is found by an offset. The packages that read rows run the queries; here is no I/O.

// Cursor is a position in a list of rows. The zero value is its beginning.
type Cursor struct {
	AtEnd    bool
	Range    int          // the range, in the list of ranges
	Attempts AttemptCount // whose rows the range has, where the strategy is ByAttempts
	LastTime string       // of the last row: the time that the index has behind the status, as text of the database
	LastID   string       // its primary key; "" at the beginning of a range
	EmptyID  bool         // the last row has the empty text as its key; else a cursor without a key is at the beginning of a range
	Code     Code         // of a listing of HeldState: whose rows are listed
}

// Begun reports whether a row is before the cursor in its range.
func (c Cursor) Begun() bool { return c.LastID != "" || c.EmptyID }

// AttemptCount is a value of the column that counts attempts. The zero value is none: the first is still to be looked up.
type AttemptCount struct {
	Known bool
	Ended bool   // its rows are read: the next value is to be looked up
	Value string // "" is NULL
}

// Done reports whether the list has been read to its end.
func (c Cursor) Done() bool { return c.AtEnd }

// ID is the primary key of the row before the cursor, in the range of the index it is in; "" at its beginning.
func (c Cursor) ID() string { return c.LastID }

// CursorBehind is a position in the list of due rows for code that replaces a Store, such as a model of the tables: behind the row
// with this primary key, or at the end of the list.
func CursorBehind(id string, done bool) Cursor { return Cursor{AtEnd: done, LastID: id} }

// Behind is the position behind a row: the time in whose order it comes, and its key.
func (c Cursor) Behind(last, id string) Cursor {
	c.LastTime, c.LastID, c.EmptyID = last, id, id == ""
	return c
}

// Next is the beginning of the range behind the cursor's.
func (c Cursor) Next(list []Range, byAttempts bool) Cursor {
	last := c.Range+1 == len(list) || list[c.Range+1].Status != list[c.Range].Status
	if byAttempts && last {
		first := c.Range
		for first > 0 && list[first-1].Status == list[c.Range].Status {
			first--
		}
		c.Attempts.Ended = true
		return Cursor{Range: first, Attempts: c.Attempts}
	}
	return Cursor{AtEnd: c.Range+1 == len(list), Range: c.Range + 1, Attempts: c.Attempts}
}

// Part says which rows of a status a range has, by the time that the index has behind it.
type Part uint8

const (
	Whole   Part = iota // every row, in the order of the primary key
	Untimed             // those without the time, in the order of the primary key
	Timed               // those with it, in its order
	Aged                // those made long enough ago, in the order of their making
	Ahead               // those made ahead of the clock, likewise
)

// Range is a part of the index within which rows come in one order: each page begins where the one before ended.
type Range struct {
	Status outbox.Status
	Part   Part
}

// timed reports whether its rows come in the order of the time that the index has behind the status.
func (in Range) timed() bool { return in.Part != Whole && in.Part != Untimed }

// TimeBehind is the time in whose order the index has rows of a status; the zero role, which is no time, when it has none.
func (t *Table) TimeBehind() Column {
	switch t.strategy {
	case ByDue, ByAttempts:
		return NextRetryTime
	case ByCreated:
		return CreatedAt
	}
	return ID
}

// ForgetIndex reports whether a query failed because the index it forced is gone; from then on the server chooses.
func (t *Table) ForgetIndex(err error) bool {
	const noSuchKey = 1176 // KEY_DOES_NOT_EXITS
	if server.Code(err) != noSuchKey {
		return false
	}
	t.sweepIndex.Store(nil)
	return true
}

// ForceIndex names the index of the sweep, if there is one.
func (t *Table) ForceIndex(s *Statement) {
	if index := t.sweepIndex.Load(); index != nil {
		s.Add(" FORCE INDEX (", Quote(*index), ")")
	}
}

// AttemptsOf looks among the rows with one code.
func (t *Table) AttemptsOf(code Code, after AttemptCount) *Statement {
	count := t.Column(RetryCount)
	s := Text("SELECT ", count, " FROM ", t.quoted)
	t.ForceIndex(s)
	s.Add(" WHERE ")
	t.HasCode(s, code)
	switch {
	case !after.Known:
	case after.Value == "":
		s.Add(" AND ", count, " IS NOT NULL")
	default:
		s.Add(" AND ", count, " > ", after.Value)
	}
	s.Add(" ORDER BY ", count, " LIMIT 1")
	return s
}

// Behind writes the keyset condition.
func (t *Table) Behind(s *Statement, in Range, after Cursor) {
	switch {
	case !after.Begun():
	case in.timed():
		t.BehindTime(s, t.TimeBehind(), after.LastTime, after.LastID)
	default:
		s.Add(" AND ", t.Column(ID), " > ")
		t.ID(s, after.LastID)
	}
}

// BehindTime writes the keyset condition of an order of a time and the key. A comparison of rows would say it shorter, but no server makes a range of it.
func (t *Table) BehindTime(s *Statement, role Column, last, id string) {
	time := t.Column(role)
	s.Add(" AND (", time, " > ")
	s.Arg(last)
	s.Add(" OR ", time, " = ")
	s.Arg(last)
	s.Add(" AND ", t.Column(ID), " > ")
	t.ID(s, id)
	s.Add(")")
}

// TimeShown is the time in whose order the rows of a range come, as an expression; a page returns it with each row.
func (t *Table) TimeShown(in Range) string {
	if !in.timed() {
		return "NULL"
	}
	return "CAST(" + t.Column(t.TimeBehind()) + " AS CHAR)"
}

// FromIndex writes the table, its index and the condition that rows have a code; where the strategy is ByAttempts, also one number of attempts.
func (t *Table) FromIndex(s *Statement, code Code, attempts AttemptCount) {
	s.Add(" FROM ", t.quoted)
	t.ForceIndex(s)
	s.Add(" WHERE ")
	t.HasCode(s, code)
	switch {
	case t.strategy != ByAttempts:
	case attempts.Value == "":
		s.Add(" AND ", t.Column(RetryCount), " IS NULL")
	default:
		s.Add(" AND ", t.Column(RetryCount), " = ", attempts.Value)
	}
}

// InOrder ends the query of a page.
func (t *Table) InOrder(s *Statement, in Range, limit int) {
	s.Add(" ORDER BY ")
	if in.timed() {
		s.Add(t.Column(t.TimeBehind()), ", ")
	}
	s.Add(t.Column(ID))
	s.Limit(limit)
}
