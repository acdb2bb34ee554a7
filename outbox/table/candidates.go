package table

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// Candidate is a table that a preset fits.
type Candidate struct {
	Name    string // schema.table
	Preset  string
	Columns int // of the table that have a role
}

// Candidates finds tables that the account may see and a preset fits, best first. It looks at no more than limit tables with the columns for
// topic and body of a preset; more reports that there are others. Names that begin with an underscore and tables that old rows of another one
// move to are left out. The error is of the conversation with the server.
func Candidates(ctx context.Context, db *sql.DB, limit int) (all []Candidate, more bool, err error) {
	names, err := likely(ctx, db, limit+1)
	if err != nil {
		return nil, false, fmt.Errorf("list the tables: %w", err)
	}
	if more = len(names) > limit; more {
		names = names[:limit]
	}
	for _, n := range names {
		if isMoved(names, n) {
			continue
		}
		best, err := BestFit(ctx, db, Mapping{Schema: n[0], Name: n[1]})
		if err != nil {
			return nil, false, err
		}
		if best.Table != nil {
			all = append(all, Candidate{Name: best.Table.Name(), Preset: best.Preset, Columns: best.Columns})
		}
	}
	slices.SortStableFunc(all, func(a, b Candidate) int { return cmp.Compare(b.Columns, a.Columns) })
	return all, more, nil
}

// likely lists tables that have two columns whose names are those of the topic and the body of presets.
func likely(ctx context.Context, db *sql.DB, limit int) (names [][2]string, err error) {
	var columns []string
	for _, preset := range presets {
		for _, role := range []Column{Topic, Body} {
			columns = append(columns, "'"+preset.columns[role]+"'") // names of ours, of one spelling each
		}
	}
	slices.Sort(columns)
	query := Text("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMNS ",
		"WHERE TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') AND LEFT(TABLE_NAME, 1) <> '_' ",
		"AND LOWER(COLUMN_NAME) IN (", strings.Join(slices.Compact(columns), ", "), ") ",
		"GROUP BY TABLE_SCHEMA, TABLE_NAME HAVING COUNT(*) >= 2 ORDER BY TABLE_SCHEMA, TABLE_NAME")
	query.Limit(limit)
	var n [2]string
	err = query.Each(ctx, db, []any{&n[0], &n[1]}, func() error {
		names = append(names, n)
		return nil
	})
	return names, err
}
