package retention

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Count is the number of rows of a table that would leave now.
type Count struct {
	Expiry  table.Expiry
	Rows    int
	AtLeast bool // there may be more: it ended before the end of the table
}

// Preview reads through a table without a change; it ends after a number of rows or a time.
func Preview(ctx context.Context, rows Rows, name string, of []table.Expiry, most int, longest time.Duration) ([]Count, error) {
	counts, end := make([]Count, len(of)), time.Now().Add(longest)
	for i, e := range of {
		counts[i].Expiry = e
	}
	for at, looked := "", 0; ; {
		page, err := rows.Expired(ctx, name, at, of)
		if err != nil {
			return nil, err
		}
		for i, ids := range page.IDs {
			counts[i].Rows += len(ids)
		}
		if at, looked = page.Next, looked+page.Looked; page.Done {
			return counts, nil
		}
		if looked >= most || time.Now().After(end) {
			for i := range counts {
				counts[i].AtLeast = true
			}
			return counts, nil
		}
	}
}
