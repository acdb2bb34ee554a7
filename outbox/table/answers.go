package table

import "context"

// answers are queries that go to the server as one statement: a sample asks about ten of every table, and with many tables the round trips
// were most of what a relay at rest did.
type answers struct {
	query statement
	into  []any
}

// ask adds a query of one value.
func (a *answers) ask(query *statement, into any) {
	a.query.add("(", query.text.String(), "), ")
	a.query.args = append(a.query.args, query.args...)
	a.into = append(a.into, into)
}

// askOver adds the last query, which may have several values over the rows of another.
func (a *answers) askOver(rows *statement, columns string, into ...any) {
	a.query.add(columns, " FROM (", rows.text.String(), ") AS sample")
	a.query.args = append(a.query.args, rows.args...)
	a.into = append(a.into, into...)
}

// read gets the answers.
func (a *answers) read(ctx context.Context, s *Store) error {
	query := &statement{args: a.query.args}
	query.add("SELECT ", a.query.text.String())
	return s.scan(ctx, query, a.into...)
}
