package store

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Final looks at a page of the rows with a final status, in the order of the index that the table has (strategy), and returns those that
// have had it for long enough, and where the next page begins. A FAILED row that does not say since when counts as old, a SENT one as
// young. A page may be empty before the end.
func (s finder) Final(ctx context.Context, name string, after table.Cursor, q table.FinalQuery) ([]outbox.Candidate, table.Cursor, error) {
	t, err := s.table(name)
	if err != nil {
		return nil, after, err
	}
	if q.Limit <= 0 {
		q.Limit = table.MaxRows
	}
	look := pageQuery{table.DueQuery{Limit: q.Limit}, q.Age}
	list := t.rangesOf(q.Status, look)
	if after.Done() || after.Range >= len(list) || t.Mapping().Codes[q.Status] == "" {
		return nil, table.Cursor{AtEnd: true}, nil
	}
	var old eachRow // also of pages that the server refused for one of their rows
	page, next, err := s.page(ctx, t, list, after, look, &old)
	if t.ForgetIndex(err) {
		old = nil
		page, next, err = s.page(ctx, t, list, after, look, &old)
	}
	if err != nil {
		return nil, after, fmt.Errorf("look for %s rows of %s: %w", q.Status, name, err)
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

// finalFor writes whether a row has its final status for at least a duration.
func (t *mapped) finalFor(s *table.Statement, status outbox.Status, age time.Duration) {
	otherwise := "FALSE"
	if status == outbox.Failed {
		otherwise = "TRUE"
	}
	t.since(s, table.FinalSince(status), age, otherwise)
}

// DatesFailures reports whether the rows of a table say when they became FAILED.
func (s finder) DatesFailures(name string) bool {
	t := s.byName[name]
	return t != nil && (t.Has(table.LastExecTime) || t.Has(table.UpdatedAt))
}
