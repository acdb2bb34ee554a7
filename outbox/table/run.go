package table

import (
	"context"
	"database/sql"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Text begins a statement.
func Text(parts ...string) *Statement {
	s := &Statement{}
	s.Add(parts...)
	return s
}

// Each runs a query. It scans each row into the same values and calls row for it; an error of row ends the query.
func (s *Statement) Each(ctx context.Context, db server.Querier, into []any, row func() error) error {
	rows, err := db.QueryContext(ctx, s.String(), s.Args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := row(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// One runs a query of one row; sql.ErrNoRows where there is none.
func (s *Statement) One(ctx context.Context, db server.Querier, into ...any) error {
	return db.QueryRowContext(ctx, s.String(), s.Args...).Scan(into...)
}

// SelectWhole begins a query of some expressions and of all columns that make a message.
func (t *Table) SelectWhole(first ...string) *Statement {
	s := Text("SELECT ")
	s.List(len(first), func(i int) { s.Add(first[i]) })
	for _, role := range t.reads {
		s.Add(", ", t.Shown(role))
	}
	s.Add(" FROM ", t.quoted)
	return s
}

// WholeRow is one row of a query of SelectWhole. It is reused from row to row.
type WholeRow struct {
	First  []sql.RawBytes
	raw    []sql.RawBytes
	values []Value
	table  *Table
}

// NewWholeRow makes room for a row; first is the number of expressions before its columns.
func (t *Table) NewWholeRow(first int) *WholeRow {
	return &WholeRow{make([]sql.RawBytes, first), make([]sql.RawBytes, len(t.reads)), make([]Value, len(t.reads)), t}
}

// Into is where a row is scanned to.
func (w *WholeRow) Into() (into []any) {
	for i := range w.First {
		into = append(into, &w.First[i])
	}
	for i := range w.raw {
		into = append(into, &w.raw[i])
	}
	return into
}

// ID is the primary key.
func (w *WholeRow) ID() string { return string(w.table.KeyText(ID, w.raw[w.table.at[ID]])) }

// Values are what Message makes a message of.
func (w *WholeRow) Values() []Value {
	for i, data := range w.raw {
		w.values[i] = Value{Data: data, Null: data == nil}
	}
	return w.values
}
