package table

import (
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// MaxCount is where counting of rows stops, so that a sample costs a bounded part of the index.
const MaxCount = 100_000

// DueQuery says which rows a sweep looks for. All times are compared by the database's clock.
type DueQuery struct {
	Threshold     time.Duration // PENDING rows without a due time: at least this old, or made ahead of the clock
	Horizon       time.Duration // PENDING rows with a due time: due within this from now; those not due yet are Waiting
	ExpiredClaims time.Duration // SENDING rows: claimed at least this long ago, ahead of the clock, or at no time; 0 takes every one
	Limit         int           // rows of one page; 0 means 500
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

func (t *Table) ForceIndex(s *Statement) {
	if index := t.sweepIndex.Load(); index != nil {
		s.Add(" FORCE INDEX (", Quote(*index), ")")
	}
}

// AttemptsOf looks among the rows with one code.
func (t *Table) AttemptsOf(code Code, after AttemptCount) *Statement {
	count := t.Column(RetryCount)
	s := &Statement{}
	s.Add("SELECT ", count, " FROM ", t.quoted)
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

// Behind writes the keyset condition. A comparison of rows would say it shorter, but no server makes a range of it.
func (t *Table) Behind(s *Statement, in Range, after Cursor) {
	id := t.Column(ID)
	switch {
	case !after.Begun():
	case in.Part == Whole || in.Part == Untimed:
		s.Add(" AND ", id, " > ")
		t.ID(s, after.LastID)
	default:
		time := t.Column(t.TimeBehind())
		s.Add(" AND (", time, " > ")
		s.Arg(after.LastTime)
		s.Add(" OR ", time, " = ")
		s.Arg(after.LastTime)
		s.Add(" AND ", id, " > ")
		t.ID(s, after.LastID)
		s.Add(")")
	}
}

// FinalQuery says which final rows are looked for, to go out again.
type FinalQuery struct {
	Status outbox.Status // Failed or Sent
	Age    time.Duration // they have this status for at least so long, by the database's clock
	Limit  int           // rows that a page looks at; 0 means 500
}

// FailedSince says in words from when on a row counts as FAILED.
func (t *Table) FailedSince() string {
	for _, role := range []Column{LastExecTime, UpdatedAt} {
		if t.Has(role) {
			return ", counted from " + t.columns[role].Name
		}
	}
	return ", all of them in one pass: no column says when a row failed"
}

// SentSince says in words from when on a row counts as SENT.
func (t *Table) SentSince() string {
	for _, role := range FinalSince(outbox.Sent) {
		if t.Has(role) {
			return " (counted from " + t.columns[role].Name + ")"
		}
	}
	return ""
}

// ExpiredPage is what one page of a walk over a table has seen.
type ExpiredPage struct {
	IDs    [][]string // primary keys of expired rows, by Expiry
	Looked int        // rows on the page
	Next   string     // where the next page begins, for Expired alone
	Done   bool       // the table ends here, or what follows is too young
}

// findAgeIndex looks for an index by which a walk sees old final rows only.
func (c *check) findAgeIndex(t *Table) {
	if !t.Has(CreatedAt) || t.columns[CreatedAt].Nullable {
		return
	}
	order := []string{strings.ToLower(t.columns[StatusCode].Name), strings.ToLower(t.columns[CreatedAt].Name)}
	index := c.index(func(i Index) bool {
		return slices.Equal(i.Columns, order) || slices.Equal(i.Columns, append(order, strings.ToLower(t.columns[ID].Name)))
	})
	if index != nil {
		t.ageIndex.Store(&index.Name)
	}
}
