package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// describeWords asks which codes the server cannot tell apart in the status column.
func describeWords(ctx context.Context, db *sql.DB, m Mapping, d description) (alike [][2]string, err error) {
	names := append([]string{m.Columns[StatusCode]}, m.Spellings[StatusCode]...)
	i := slices.IndexFunc(d.columns, func(c ColumnType) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, c.Name) })
	})
	if i < 0 || d.columns[i].Kind() != kindShort || !d.columns[i].readable() {
		return nil, nil
	}
	c, words := d.columns[i], m.Words()
	word := "CONVERT(? USING " + c.Charset + ") COLLATE " + c.Collation
	for i, one := range words {
		for _, other := range words[:i] {
			if c.Fit(one.Code) != one.Code || c.Fit(other.Code) != other.Code {
				continue // which is a fault of its own
			}
			var same bool
			if err := db.QueryRowContext(ctx, "SELECT "+word+" = "+word, one.Code, other.Code).Scan(&same); err != nil {
				return nil, fmt.Errorf("compare the status codes: %w", err)
			}
			if same {
				alike = append(alike, [2]string{other.Code, one.Code})
			}
		}
	}
	return alike, nil
}
