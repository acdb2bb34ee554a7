package query

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// maxConditions bounds one statement of HasMessages.
const maxConditions = 500

// identifies are the roles whose columns make the message id.
func (t *mapped) identifies() []table.Column {
	if t.Has(table.MessageID) {
		return []table.Column{table.MessageID}
	}
	return []table.Column{table.BizType, table.Key}
}

// HasMessages returns those of the message ids that a row of a table has, whatever its status. Ids are compared byte by byte. An
// id that no row can have is left out of the statement; the others are looked up.
func (s spans) HasMessages(ctx context.Context, messageIDs []string) (map[string]bool, error) {
	found := map[string]bool{}
	for _, t := range s.bound {
		var conditions []func(*table.Statement)
		for _, id := range messageIDs {
			if !found[id] {
				conditions = append(conditions, t.mayHave(id)...)
			}
		}
		for chunk := range slices.Chunk(conditions, maxConditions) {
			if err := s.findMessages(ctx, t, chunk, found); err != nil {
				return nil, fmt.Errorf("table %s: %w", t.Name(), err)
			}
		}
	}
	return found, nil
}

func (s spans) findMessages(ctx context.Context, t *mapped, conditions []func(*table.Statement), found map[string]bool) error {
	query := table.Text("SELECT ", t.MessageID(), " FROM ", t.Quoted(), " WHERE ")
	either(query, conditions)
	var id sql.RawBytes
	return query.Each(ctx, s.db, []any{&id}, func() error {
		found[string(id)] = true // of another one, too, that the collation takes for equal: it is asked for by its own text
		return nil
	})
}

// mayHave are the conditions, each on columns that an index begins with, of which a row with the message id fulfils one. The
// columns compare by their own collation, which may take more for equal.
func (t *mapped) mayHave(id string) (conditions []func(*table.Statement)) {
	if t.Has(table.MessageID) {
		if equal := t.equal(table.MessageID, id); equal != nil {
			conditions = append(conditions, equal)
		}
		return conditions
	}
	for i := range len(id) { // each part may hold the separator, too
		if id[i] != ':' {
			continue
		}
		if t.AppendsID() {
			if equal := t.equal(table.ID, id[i+1:]); equal != nil {
				conditions = append(conditions, equal)
			}
			continue
		}
		biz, key := t.equal(table.BizType, id[:i]), t.equal(table.Key, id[i+1:])
		if biz == nil || key == nil {
			continue
		}
		conditions = append(conditions, func(s *table.Statement) {
			s.Add("(")
			biz(s)
			s.Add(" AND ")
			key(s)
			s.Add(")")
		})
	}
	return conditions
}

// equal writes that a column has a value; nil when no row can have it.
func (t *mapped) equal(role table.Column, value string) func(*table.Statement) {
	c := t.Type(role)
	switch {
	case c.Kind() == table.KindInteger:
		if digits := strings.TrimPrefix(value, "-"); digits == "" || len(digits) > 20 || strings.Trim(digits, "0123456789") != "" {
			return nil
		}
		return func(s *table.Statement) { s.Add(t.Column(role), " = ", value) }
	case c.IsBytes():
		if value == "" || len(value)%2 != 0 || strings.Trim(value, "0123456789abcdef") != "" {
			return nil
		}
		return func(s *table.Statement) { s.Add(t.Column(role), " = x'", value, "'") }
	case !utf8.ValidString(value) || c.Fit(value) != value:
		return nil
	}
	return func(s *table.Statement) {
		s.Add(t.Column(role), " = ")
		s.Arg(value)
	}
}
