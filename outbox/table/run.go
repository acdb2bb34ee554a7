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
	sets    []*charset.Set // by column; nil: UTF-8 and others
	inSet   []sql.RawBytes // of columns with a set: "1" when raw is in it, "0" after an ALTER
	values  []Value
	scratch []byte
	table   *Table
}

// NewWholeRow makes room for a row; first is the number of expressions before its columns.
func (t *Table) NewWholeRow(first int) *WholeRow {
	w := &WholeRow{
		First: make([]sql.RawBytes, first), raw: make([]sql.RawBytes, len(t.reads)), sets: make([]*charset.Set, len(t.reads)),
		inSet: make([]sql.RawBytes, len(t.reads)), values: make([]Value, len(t.reads)), table: t,
	}
	for i, role := range t.reads {
		w.sets[i] = t.columns[role].set()
	}
	return w
}

// Into is where a row is scanned to.
func (w *WholeRow) Into() (into []any) {
	for i := range w.First {
		into = append(into, &w.First[i])
	}
	for i := range w.raw {
		into = append(into, &w.raw[i])
	}
	for i, set := range w.sets {
		if set != nil {
			into = append(into, &w.inSet[i])
		}
	}
	return into
}

// ID is the primary key.
func (w *WholeRow) ID() string {
	w.scratch = w.scratch[:0]
	return string(w.table.KeyText(ID, w.value(w.table.at[ID]).Data))
}

// Values are what Message makes a message of. They are valid until the next call.
func (w *WholeRow) Values() []Value {
	w.scratch = w.scratch[:0]
	for i := range w.raw {
		w.values[i] = w.value(i)
	}
	return w.values
}

func (w *WholeRow) value(i int) Value {
	v := Value{Data: w.raw[i], Null: w.raw[i] == nil}
	if w.sets[i] != nil && !v.Null && string(w.inSet[i]) == "1" {
		v.Data, w.scratch, v.Fault = w.sets[i].Text(v.Data, w.scratch)
	}
	return v
}
