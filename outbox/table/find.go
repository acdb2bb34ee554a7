package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// How much a search by key reads: rows with one key, and business types to look for it under.
const (
	maxFound = 1000
	maxTypes = 200
)

// Found is what a search has found.
type Found struct {
	Rows []Row // in the order of their primary keys
	// Scan says what was not looked for, because no index finds it and the table is large; "" when everything was.
	Scan string
	More bool // there are more than maxFound rows
}

// Find looks for the rows that have a text as their primary key, their message id or their business key. It reads rows by an index, or all
// of a small table; all of a large one only when scan allows it.
func (s *Store) Find(ctx context.Context, table, ref string, scan bool) (Found, error) {
	t, err := s.table(table)
	if err != nil {
		return Found{}, err
	}
	found, err := s.find(ctx, t, ref, scan, t.waysTo(ref))
	if err != nil {
		return Found{}, fmt.Errorf("look for a row of %s: %w", table, err)
	}
	keep := found.Rows[:0]
	for _, r := range found.Rows {
		if r.ID == ref || r.MessageID == ref || r.Key == ref {
			keep = append(keep, r)
		}
	}
	found.Rows = keep
	return found, nil
}

// way is one of the things that a text may be.
type way struct {
	what    string
	where   []func(*statement) // conditions, of which a row fulfils one
	by      []Column           // an index must begin with one of these
	under   Column             // or with this one, whose values are gone through; ID for none
	columns []Column           // for the index that would help
}

// waysTo are the things that a text may be; none for a text that no row can have.
func (t *Table) waysTo(ref string) (ways []way) {
	if equal := t.equal(ID, ref); equal != nil && t.checkID(ref) == nil {
		ways = append(ways, way{what: "primary key", where: []func(*statement){equal}})
	}
	if conditions := t.mayHave(ref); len(conditions) > 0 {
		by := t.identifies()
		if !t.has(MessageID) && t.appendID {
			by = nil // by the primary key
		}
		ways = append(ways, way{what: "message id", where: conditions, by: by, columns: by})
	}
	return append(ways, t.wayByKey(ref)...)
}

func (t *Table) wayByKey(key string) []way {
	if !t.has(Key) || t.has(MessageID) && t.columns[Key].Name == t.columns[MessageID].Name {
		return nil
	}
	equal := t.equal(Key, key)
	if equal == nil {
		return nil
	}
	w := way{what: "business key", where: []func(*statement){equal}, by: []Column{Key}, columns: []Column{Key}}
	if t.has(BizType) {
		w.under = BizType
	}
	return []way{w}
}

func (s *Store) find(ctx context.Context, t *Table, ref string, scan bool, ways []way) (found Found, err error) {
	indexes, err := describeIndexes(ctx, s.db, description{schema: t.schema, name: t.bare()})
	if err != nil {
		return found, err
	}
	seen := map[outbox.Identity]bool{}
	for _, w := range ways {
		where, why, err := s.conditions(ctx, t, indexes, w, ref, scan)
		if err != nil {
			return found, err
		}
		if why != "" {
			found.Scan = why
			continue
		}
		for chunk := range slices.Chunk(where, maxConditions) {
			n := 0
			query := t.selectLook("NULL")
			query.add(" FROM ", t.quoted, " WHERE ")
			either(query, chunk)
			query.limit(maxFound + 1)
			err := s.eachLook(ctx, t, query, func(r *Row, _ string) {
				if n++; n <= maxFound && !seen[r.Identity] {
					seen[r.Identity] = true
					found.Rows = append(found.Rows, *r)
				}
			})
			if err != nil {
				return found, err
			}
			found.More = found.More || n > maxFound
		}
	}
	slices.SortFunc(found.Rows, func(a, b Row) int { return t.compareIDs(a.ID, b.ID) })
	return found, nil
}

func either(s *statement, conditions []func(*statement)) {
	s.add("(")
	for i, condition := range conditions {
		if i > 0 {
			s.add(" OR ")
		}
		condition(s)
	}
	s.add(")")
}

// compareIDs is the order of the primary key, as far as its text has one.
func (t *Table) compareIDs(a, b string) int {
	if t.columns[ID].kindOf() == integer && a != "" && b != "" && (a[0] != '-' && b[0] != '-') && len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// conditions are those of a way that an index serves. Otherwise they say why not, unless the table is small or may be read.
func (s *Store) conditions(ctx context.Context, t *Table, indexes []index, w way, ref string, scan bool) (where []func(*statement), why string, err error) {
	begins := func(role Column) bool {
		name := strings.ToLower(t.columns[role].Name)
		return slices.ContainsFunc(indexes, func(i index) bool { return i.columns[0] == name })
	}
	if len(w.by) == 0 || slices.ContainsFunc(w.by, begins) {
		return w.where, "", nil
	}
	if w.under != ID {
		i := slices.IndexFunc(indexes, func(i index) bool {
			return len(i.columns) > 1 && i.columns[0] == strings.ToLower(t.columns[w.under].Name) && i.columns[1] == strings.ToLower(t.columns[w.by[0]].Name)
		})
		if i >= 0 {
			types, all, err := s.types(ctx, t, indexes[i].name, w.under)
			if err != nil {
				return nil, "", err
			}
			if all {
				return t.underTypes(types, w), "", nil
			}
		}
	}
	rows, err := s.estimate(ctx, t, anyRow())
	if err != nil || scan || rows <= s.scanLimit {
		return w.where, "", err
	}
	return nil, fmt.Sprintf("%q was not looked for as a %s of %s: no index begins with %s, and the table has about %d rows; "+
		"an index would help: CREATE INDEX idx_outbox_%s ON %s (%s)", ref, w.what, t.name, t.columns[w.columns[0]].Name, rows,
		strings.ReplaceAll(w.what, " ", "_"), t.quoted, t.column(w.columns[0])), nil
}

func anyRow() *statement {
	s := &statement{}
	s.add("TRUE")
	return s
}

// types are the values with which the rows of an index begin, each found by one step in it. all is false when there are more than
// maxTypes.
func (s *Store) types(ctx context.Context, t *Table, index string, role Column) (values []string, all bool, err error) {
	for len(values) <= maxTypes {
		query := &statement{}
		query.add("SELECT ", t.column(role), " FROM ", t.quoted, " FORCE INDEX (", quote(index), ") WHERE ", t.column(role), " IS NOT NULL")
		if n := len(values); n > 0 {
			query.add(" AND ", t.column(role), " > ")
			t.value(query, role, values[n-1])
		}
		query.add(" ORDER BY ", t.column(role), " LIMIT 1")
		var value string
		switch err := s.db.QueryRowContext(ctx, query.text.String(), query.args...).Scan(&value); {
		case errors.Is(err, sql.ErrNoRows):
			return values, true, nil
		case err != nil:
			return nil, false, err
		}
		values = append(values, value)
	}
	return nil, false, nil
}

// underTypes are the conditions of a way for each of the values that its index begins with.
func (t *Table) underTypes(types []string, w way) (where []func(*statement)) {
	for _, value := range types {
		where = append(where, func(s *statement) {
			s.add("(", t.column(w.under), " = ")
			t.value(s, w.under, value)
			s.add(" AND ")
			w.where[0](s)
			s.add(")")
		})
	}
	return where
}

// value writes a value that the column has shown.
func (t *Table) value(s *statement, role Column, text string) {
	if t.columns[role].kindOf() == integer {
		s.add(text)
		return
	}
	s.string(text)
}

// listByKey is a listing of the rows with one business key.
func (s *Store) listByKey(ctx context.Context, t *Table, q Listing, at Cursor) (page Listed, err error) {
	ways := t.wayByKey(q.Key)
	if t.has(Key) && len(ways) == 0 { // the key is the message id
		ways = t.waysTo(q.Key)
	}
	found, err := s.find(ctx, t, q.Key, q.Scan, ways)
	if err != nil || found.Scan != "" {
		return Listed{Scan: found.Scan}, err
	}
	for _, r := range found.Rows {
		if at.begun() && t.compareIDs(r.ID, at.id) <= 0 || !t.fits(q, &r) {
			continue
		}
		if len(page.Rows) == q.Limit {
			page.Next = behindRow(&page.Rows[q.Limit-1]).place()
			break
		}
		page.Rows = append(page.Rows, r)
	}
	return page, nil
}

// Message reads one row whole, as the message that the relay makes of it; nil when it is gone or another one by now. fault is why it
// cannot be made one.
func (s *Store) Message(ctx context.Context, id outbox.Identity) (m *outbox.Message, fault, err error) {
	err = s.byKeyTold([]outbox.Identity{id}, func(t *Table, _ []outbox.Identity) error {
		query := &statement{}
		query.add("SELECT ", t.messageID())
		for _, role := range t.reads {
			query.add(", ", t.shown(role))
		}
		query.add(" FROM ", t.quoted, " FORCE INDEX (PRIMARY) WHERE ")
		t.idIn(query, 1, func(int) string { return id.ID })
		raw, values := make([]sql.NullString, len(t.reads)+1), make([]Value, len(t.reads))
		into := make([]any, len(raw))
		for i := range raw {
			into[i] = &raw[i]
		}
		err := s.db.QueryRowContext(ctx, query.text.String(), query.args...).Scan(into...)
		if errors.Is(err, sql.ErrNoRows) || err == nil && raw[0].String != id.MessageID {
			return nil
		} else if err != nil {
			return err
		}
		for i := range values {
			values[i] = Value{Data: []byte(raw[i+1].String), Null: !raw[i+1].Valid}
		}
		m, fault = t.Message(values)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("read row %s: %w", strconv.Quote(id.ID), err)
	}
	return m, fault, err
}
