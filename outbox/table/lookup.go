package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxConditions bounds one statement of HasMessages.
const maxConditions = 500

// identifies are the roles whose columns make the message id.
func (t *Table) identifies() []Column {
	if t.has(MessageID) {
		return []Column{MessageID}
	}
	return []Column{BizType, Key}
}

// HasMessages returns those of the message ids that a row of a table has, whatever its status. Ids are compared byte by byte. An
// id that no row can have is left out of the statement; the others are looked up.
func (s *Store) HasMessages(ctx context.Context, messageIDs []string) (map[string]bool, error) {
	found := map[string]bool{}
	for _, t := range s.tables {
		var conditions []func(*statement)
		for _, id := range messageIDs {
			if !found[id] {
				conditions = append(conditions, t.mayHave(id)...)
			}
		}
		for chunk := range slices.Chunk(conditions, maxConditions) {
			if err := s.findMessages(ctx, t, chunk, found); err != nil {
				return nil, fmt.Errorf("table %s: %w", t.name, err)
			}
		}
	}
	return found, nil
}

func (s *Store) findMessages(ctx context.Context, t *Table, conditions []func(*statement), found map[string]bool) error {
	query := &statement{}
	query.add("SELECT ", t.messageID(), " FROM ", t.quoted, " WHERE ")
	for i, condition := range conditions {
		if i > 0 {
			query.add(" OR ")
		}
		condition(query)
	}
	rows, err := s.db.QueryContext(ctx, query.text.String(), query.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id sql.RawBytes
		if err := rows.Scan(&id); err != nil {
			return err
		}
		found[string(id)] = true // of another one, too, that the collation takes for equal: it is asked for by its own text
	}
	return rows.Err()
}

// mayHave are the conditions, each on columns that an index begins with, of which a row with the message id fulfils one. The
// columns compare by their own collation, which may take more for equal.
func (t *Table) mayHave(id string) (conditions []func(*statement)) {
	if t.has(MessageID) {
		if equal := t.equal(MessageID, id); equal != nil {
			conditions = append(conditions, equal)
		}
		return conditions
	}
	for i := range len(id) { // each part may hold the separator, too
		if id[i] != ':' {
			continue
		}
		if t.appendID {
			if equal := t.equal(ID, id[i+1:]); equal != nil {
				conditions = append(conditions, equal)
			}
			continue
		}
		biz, key := t.equal(BizType, id[:i]), t.equal(Key, id[i+1:])
		if biz == nil || key == nil {
			continue
		}
		conditions = append(conditions, func(s *statement) {
			s.add("(")
			biz(s)
			s.add(" AND ")
			key(s)
			s.add(")")
		})
	}
	return conditions
}

// equal writes that a column has a value; nil when no row can have it.
func (t *Table) equal(role Column, value string) func(*statement) {
	c := t.columns[role]
	switch {
	case c.kindOf() == integer:
		if digits := strings.TrimPrefix(value, "-"); digits == "" || len(digits) > 20 || strings.Trim(digits, "0123456789") != "" {
			return nil
		}
		return func(s *statement) { s.add(t.column(role), " = ", value) }
	case c.isBytes():
		if value == "" || len(value)%2 != 0 || strings.Trim(value, "0123456789abcdef") != "" {
			return nil
		}
		return func(s *statement) { s.add(t.column(role), " = x'", value, "'") }
	case !utf8.ValidString(value) || c.fit(value) != value:
		return nil
	}
	return func(s *statement) {
		s.add(t.column(role), " = ")
		s.string(value)
	}
}
