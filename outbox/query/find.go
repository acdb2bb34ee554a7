package query

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
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
func (s lister) Find(ctx context.Context, table, ref string, scan bool) (Found, error) {
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
	where   []func(*table.Statement) // conditions, of which a row fulfils one
	by      []table.Column           // an index must begin with one of these
	under   table.Column             // or with this one, whose values are gone through; ID for none
	columns []table.Column           // for the index that would help
}

// waysTo are the things that a text may be; none for a text that no row can have.
func (t *mapped) waysTo(ref string) (ways []way) {
	if equal := t.equal(table.ID, ref); equal != nil && t.CheckID(ref) == nil {
		ways = append(ways, way{what: "primary key", where: []func(*table.Statement){equal}})
	}
	if conditions := t.mayHave(ref); len(conditions) > 0 {
		by := t.identifies()
		if !t.Has(table.MessageID) && t.AppendsID() {
			by = nil // by the primary key
		}
		ways = append(ways, way{what: "message id", where: conditions, by: by, columns: by})
	}
	return append(ways, t.wayByKey(ref)...)
}

func (t *mapped) wayByKey(key string) []way {
	if !t.Has(table.Key) || t.Has(table.MessageID) && t.Type(table.Key).Name == t.Type(table.MessageID).Name {
		return nil
	}
	equal := t.equal(table.Key, key)
	if equal == nil {
		return nil
	}
	w := way{what: "business key", where: []func(*table.Statement){equal}, by: []table.Column{table.Key}, columns: []table.Column{table.Key}}
	if t.Has(table.BizType) {
		w.under = table.BizType
	}
	return []way{w}
}

func (s lister) find(ctx context.Context, t *mapped, ref string, scan bool, ways []way) (found Found, err error) {
	indexes, err := t.Indexes(ctx, s.db)
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
			query.Add(" FROM ", t.Quoted(), " WHERE ")
			either(query, chunk)
			query.Limit(maxFound + 1)
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

func either(s *table.Statement, conditions []func(*table.Statement)) {
	s.Add("(")
	for i, condition := range conditions {
		if i > 0 {
			s.Add(" OR ")
		}
		condition(s)
	}
	s.Add(")")
}

// compareIDs is the order of the primary key, as far as its text has one.
func (t *mapped) compareIDs(a, b string) int {
	if t.Type(table.ID).Kind() == table.KindInteger && a != "" && b != "" && (a[0] != '-' && b[0] != '-') && len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// conditions are those of a way that an index serves. Otherwise they say why not, unless the table is small or may be read.
func (s lister) conditions(ctx context.Context, t *mapped, indexes []table.Index, w way, ref string, scan bool) (where []func(*table.Statement), why string, err error) {
	begins := func(role table.Column) bool {
		name := strings.ToLower(t.Type(role).Name)
		return slices.ContainsFunc(indexes, func(i table.Index) bool { return i.Columns[0] == name })
	}
	if len(w.by) == 0 || slices.ContainsFunc(w.by, begins) {
		return w.where, "", nil
	}
	if w.under != table.ID {
		i := slices.IndexFunc(indexes, func(i table.Index) bool {
			return len(i.Columns) > 1 && i.Columns[0] == strings.ToLower(t.Type(w.under).Name) && i.Columns[1] == strings.ToLower(t.Type(w.by[0]).Name)
		})
		if i >= 0 {
			types, all, err := s.types(ctx, t, indexes[i].Name, w.under)
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
		"an index would help: CREATE INDEX idx_outbox_%s ON %s (%s)", ref, w.what, t.Name(), t.Type(w.columns[0]).Name, rows,
		strings.ReplaceAll(w.what, " ", "_"), t.Quoted(), t.Column(w.columns[0])), nil
}

func anyRow() *table.Statement {
	s := table.Text("TRUE")
	return s
}

// types are the values with which the rows of an index begin, each found by one step in it. all is false when there are more than
// maxTypes.
func (s lister) types(ctx context.Context, t *mapped, index string, role table.Column) (values []string, all bool, err error) {
	for len(values) <= maxTypes {
		query := table.Text("SELECT ", t.Column(role), " FROM ", t.Quoted(), " FORCE INDEX (", table.Quote(index), ") WHERE ", t.Column(role), " IS NOT NULL")
		if n := len(values); n > 0 {
			query.Add(" AND ", t.Column(role), " > ")
			t.value(query, role, values[n-1])
		}
		query.Add(" ORDER BY ", t.Column(role), " LIMIT 1")
		var value string
		switch err := query.One(ctx, s.db, &value); {
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
func (t *mapped) underTypes(types []string, w way) (where []func(*table.Statement)) {
	for _, value := range types {
		where = append(where, func(s *table.Statement) {
			s.Add("(", t.Column(w.under), " = ")
			t.value(s, w.under, value)
			s.Add(" AND ")
			w.where[0](s)
			s.Add(")")
		})
	}
	return where
}

// value writes a value that the column has shown.
func (t *mapped) value(s *table.Statement, role table.Column, text string) {
	if t.Type(role).Kind() == table.KindInteger {
		s.Add(text)
		return
	}
	s.Arg(text)
}

// listByKey is a listing of the rows with one business key.
func (s lister) listByKey(ctx context.Context, t *mapped, q Listing, at table.Cursor) (page Listed, err error) {
	ways := t.wayByKey(q.Key)
	if t.Has(table.Key) && len(ways) == 0 { // the key is the message id
		ways = t.waysTo(q.Key)
	}
	found, err := s.find(ctx, t, q.Key, q.Scan, ways)
	if err != nil || found.Scan != "" {
		return Listed{Scan: found.Scan}, err
	}
	for _, r := range found.Rows {
		if at.Begun() && t.compareIDs(r.ID, at.LastID) <= 0 || !t.fits(q, &r) {
			continue
		}
		if len(page.Rows) == q.Limit {
			page.Next = cursorText(behindRow(&page.Rows[q.Limit-1]))
			break
		}
		page.Rows = append(page.Rows, r)
	}
	return page, nil
}

// Message reads one row whole, as the message that the relay makes of it; nil when it is gone or another one by now. fault is why it
// cannot be made one.
func (s lister) Message(ctx context.Context, id outbox.Identity) (m *outbox.Message, fault, err error) {
	t, err := s.table(id.Table)
	if err == nil {
		err = t.CheckID(id.ID)
	}
	if err == nil {
		m, fault, err = s.message(ctx, t, id)
	}
	if err != nil {
		err = fmt.Errorf("read row %s: %w", strconv.Quote(id.ID), err)
	}
	return m, fault, err
}

func (s lister) message(ctx context.Context, t *mapped, id outbox.Identity) (m *outbox.Message, fault, err error) {
	query := t.SelectWhole(t.MessageID())
	query.Add(" FORCE INDEX (PRIMARY) WHERE ")
	t.IDIn(query, 1, func(int) string { return id.ID })
	whole := t.NewWholeRow(1)
	err = query.Each(ctx, s.db, whole.Into(), func() error {
		if string(whole.First[0]) == id.MessageID {
			m, fault = t.Message(whole.Values())
		}
		return nil
	})
	return m, fault, err
}
