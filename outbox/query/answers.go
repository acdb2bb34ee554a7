package query

import (
	"context"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// answers are queries that go to the server as one statement: a sample asks about ten of every table, and with many tables the round trips
// were most of what an idle relay did.
type answers struct {
	query table.Statement
	into  []any
}

// ask adds a query of one value.
func (a *answers) ask(query *table.Statement, into any) {
	a.query.Add("(", query.String(), "), ")
	a.query.Args = append(a.query.Args, query.Args...)
	a.into = append(a.into, into)
}

// askOver adds the last query, which may have several values over the rows of another.
func (a *answers) askOver(rows *table.Statement, columns string, into ...any) {
	a.query.Add(columns, " FROM (", rows.String(), ") AS sample")
	a.query.Args = append(a.query.Args, rows.Args...)
	a.into = append(a.into, into...)
}

// read gets the answers.
func (a *answers) read(ctx context.Context, s *tables) error {
	query := &table.Statement{Args: a.query.Args}
	query.Add("SELECT ", a.query.String())
	return query.One(ctx, s.db, a.into...)
}
