package table

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// FinalQuery says which final rows are looked for, to go out again.
type FinalQuery struct {
	Status outbox.Status // Failed or Sent
	Age    time.Duration // they have this status for at least so long, by the database's clock
	Limit  int           // rows that a page looks at; 0 means 500
}

// Final looks at a page of the rows with a final status, in the order of the index that the table has (strategy), and returns those that
// have had it for long enough, and where the next page begins. A FAILED row that does not say since when counts as old, a SENT one as
// young. A page may be empty before the end.
func (s *Store) Final(ctx context.Context, table string, after Cursor, q FinalQuery) ([]outbox.Candidate, Cursor, error) {
	t, err := s.table(table)
	if err != nil {
		return nil, after, err
	}
	if q.Limit <= 0 {
		q.Limit = maxRows
	}
	look := DueQuery{Limit: q.Limit, final: q.Age}
	list := t.stretchesOf(q.Status, look)
	if after.Done() || after.at >= len(list) || t.mapping.Codes[q.Status] == "" {
		return nil, Cursor{done: true}, nil
	}
	var old eachRow // also of pages that the server refused for one of their rows
	page, next, err := s.page(ctx, t, list, after, look, &old)
	if t.forgetIndex(err) {
		old = nil
		page, next, err = s.page(ctx, t, list, after, look, &old)
	}
	if err != nil {
		return nil, after, fmt.Errorf("look for %s rows of %s: %w", q.Status, table, err)
	}
	found := page[:0]
	old = old[len(old)-len(page):]
	for i, c := range page {
		if old[i] {
			found = append(found, c)
		}
	}
	return found, next, nil
}

// eachRow collects a truth value of each row that is scanned into it.
type eachRow []bool

// Scan implements sql.Scanner.
func (e *eachRow) Scan(value any) error {
	switch v := value.(type) {
	case int64:
		*e = append(*e, v != 0)
	case []byte:
		*e = append(*e, string(v) != "0")
	default:
		return fmt.Errorf("%T is no truth value", value)
	}
	return nil
}

// finalFor writes whether a row has its final status for at least so long.
func (t *Table) finalFor(s *statement, status outbox.Status, age time.Duration) {
	otherwise := "FALSE"
	if status == outbox.Failed {
		otherwise = "TRUE"
	}
	t.since(s, finalSince(status), age, otherwise)
}

// FailedSince says in words from when on a row counts as FAILED.
func (t *Table) FailedSince() string {
	for _, role := range []Column{LastExecTime, UpdatedAt} {
		if t.has(role) {
			return ", counted from " + t.columns[role].Name
		}
	}
	return ", all of them in one pass: no column says when a row failed"
}

// SentSince says in words from when on a row counts as SENT.
func (t *Table) SentSince() string {
	for _, role := range finalSince(outbox.Sent) {
		if t.has(role) {
			return " (counted from " + t.columns[role].Name + ")"
		}
	}
	return ""
}

// DatesFailures reports whether the rows of a table say when they became FAILED.
func (s *Store) DatesFailures(table string) bool {
	t := s.byName[table]
	return t != nil && (t.has(LastExecTime) || t.has(UpdatedAt))
}
