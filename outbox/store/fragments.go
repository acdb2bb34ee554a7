package store

import (
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// triesAgain reports whether a row is PENDING after a completion that uses an attempt.
func (t *mapped) triesAgain(action outbox.Action) bool {
	return action == outbox.ActionRetry || action == outbox.ActionFail && !t.Fails()
}

// stamp is the claim stamp of a row as text; NULL where rows have none.
func (t *mapped) stamp() string {
	if !t.Has(table.LastExecTime) {
		return "NULL"
	}
	return "CAST(" + t.Column(table.LastExecTime) + " AS CHAR)"
}

// statusIn writes "status IN (...)" of those that have a code in this table; PENDING always has one.
func (t *mapped) statusIn(s *table.Statement, list ...outbox.Status) {
	var codes []string
	for _, status := range list {
		if code := t.Mapping().Codes[status]; code != "" {
			codes = append(codes, code)
		}
	}
	s.Add(t.Column(table.StatusCode), " IN (")
	s.List(len(codes), func(i int) { t.Literal(s, codes[i]) })
	s.Add(")")
}

// assignCommon writes what every write adds to the columns that count and name writers, and say when.
func (t *mapped) assignCommon(s *table.Statement) {
	if t.Has(table.LockVersion) {
		s.Add(", ", t.Column(table.LockVersion), " = ", t.Column(table.LockVersion), " + 1")
	}
	if t.Has(table.UpdatedBy) {
		s.Add(", ", t.Column(table.UpdatedBy), " = ")
		s.Arg(t.Type(table.UpdatedBy).Fit(t.Mapping().Writer))
	}
	if t.Has(table.UpdatedAt) && !t.Type(table.UpdatedAt).OnUpdate() {
		s.Add(", ", t.Column(table.UpdatedAt), " = ", t.Now(table.UpdatedAt))
	}
}

// perRow writes a CASE that gives each listed row its own value; equal values for all need none.
func (t *mapped) perRow(s *table.Statement, n int, id func(i int) string, value func(i int)) {
	if n == 1 {
		value(0)
		return
	}
	s.Add("CASE ", t.Column(table.ID))
	for i := range n {
		s.Add(" WHEN ")
		t.ID(s, id(i))
		s.Add(" THEN ")
		value(i)
	}
	s.Add(" END")
}

// changing is an UPDATE of those of n rows that are free and have a status. set writes the assignments, guard the rest of the condition.
func (t *mapped) changing(n int, row func(i int) *outbox.Identity, from []outbox.Status, set, guard func(*table.Statement)) *table.Statement {
	s := &table.Statement{}
	s.Grow(textSize(n, row))
	id := func(i int) string { return row(i).ID }
	t.change(s, n, id)
	set(s)
	t.assignCommon(s)
	t.where(s, n, id)
	t.statusIn(s, from...)
	guard(s)
	return s
}

// changingRows is changing with a guard of id and message id. more continues the condition; nil for nothing.
func (t *mapped) changingRows(rows []outbox.Identity, from outbox.Status, set, more func(*table.Statement)) *table.Statement {
	row := func(i int) *outbox.Identity { return &rows[i] }
	return t.changing(len(rows), row, []outbox.Status{from}, set, func(s *table.Statement) {
		if more != nil {
			more(s)
		}
		t.sameRows(s, len(rows), row, "", nil)
	})
}

// textSize is about how long the text of a statement is: it grows once.
func textSize(n int, row func(i int) *outbox.Identity) int {
	size := 1 << 10
	for i := range n {
		size += 3*len(row(i).ID) + 2*len(row(i).MessageID) + 16
	}
	return size
}

// sameRows guards with rows of (id, message id), and of a third expression, whose values value writes; "" for none.
func (t *mapped) sameRows(s *table.Statement, n int, row func(i int) *outbox.Identity, third string, value func(i int)) {
	s.Add(" AND (", t.Column(table.ID), ", ", t.MessageID())
	if third != "" {
		s.Add(", ", third)
	}
	s.Add(") IN (")
	s.List(n, func(i int) {
		s.Add("(")
		t.ID(s, row(i).ID)
		s.Add(", ")
		s.Bytes(row(i).MessageID)
		if third != "" {
			s.Add(", ")
			value(i)
		}
		s.Add(")")
	})
	s.Add(")")
}
