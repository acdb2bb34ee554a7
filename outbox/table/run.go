package table

import (
	"context"
	"database/sql"

	"github.com/canal-outbox/canal-outbox/outbox/charset"
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
		if set := t.columns[role].set(); set != nil {
			s.Add(", ", t.stored(role, set))
		} else {
			s.Add(", ", t.Shown(role))
		}
	}
	for _, role := range t.reads {
		if set := t.columns[role].set(); set != nil {
			s.Add(", ", t.isStoredIn(role, set))
		}
	}
	s.Add(" FROM ", t.quoted)
	return s
}

// WholeRow is one row of a query of SelectWhole. It is reused from row to row.
type WholeRow struct {
	First   []sql.RawBytes
	raw     []sql.RawBytes
	inSet   []sql.RawBytes // "1" for each column with a set of its own whose bytes are in it; "0" after an ALTER
	sets    []*charset.Set // by column; nil: UTF-8 and others
	values  []Value
	scratch []byte
	table   *Table
}

// NewWholeRow makes room for a row; first is the number of expressions before its columns.
func (t *Table) NewWholeRow(first int) *WholeRow {
	w := &WholeRow{
		First: make([]sql.RawBytes, first), raw: make([]sql.RawBytes, len(t.reads)), sets: make([]*charset.Set, len(t.reads)),
		values: make([]Value, len(t.reads)), table: t,
	}
	n := 0
	for i, role := range t.reads {
		if w.sets[i] = t.columns[role].set(); w.sets[i] != nil {
			n++
		}
	}
	w.inSet = make([]sql.RawBytes, n)
	return w
}

// Into is where a row is scanned to.
func (w *WholeRow) Into() (into []any) {
	for _, list := range [][]sql.RawBytes{w.First, w.raw, w.inSet} {
		for i := range list {
			into = append(into, &list[i])
		}
	}
	return into
}

// ID is the primary key.
func (w *WholeRow) ID() string { return string(w.table.KeyText(ID, w.Values()[w.table.at[ID]].Data)) }

// Values are what Message makes a message of. They are valid until the next call.
func (w *WholeRow) Values() []Value {
	w.scratch = w.scratch[:0]
	n := 0
	for i, data := range w.raw {
		w.values[i] = Value{Data: data, Null: data == nil}
		if w.sets[i] == nil {
			continue
		}
		if n++; data != nil && string(w.inSet[n-1]) == "1" {
			w.values[i].Data, w.scratch, w.values[i].Fault = w.sets[i].Text(data, w.scratch)
		}
	}
	return w.values
}
