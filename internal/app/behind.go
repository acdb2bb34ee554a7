package app

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
)

// countPatience bounds the count of behind, for which the reader waits.
const countPatience = 5 * time.Second

// behind says, after a failover without GTIDs, how many rows of each table are PENDING on the new server though they were made before the last
// checkpoint on the old one: those that were SENT there, whose SENT was not copied, are published again. All
// tables together have countPatience; one that cannot be counted is named, and the next is asked.
func (in *instance) behind(rows tableRows) (report func(context.Context)) {
	settled := in.state.Stats().CheckpointAt
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, countPatience)
		defer cancel()
		for _, name := range rows.Names() {
			n, more, err := untried(ctx, rows, name, time.Since(settled))
			switch {
			case err != nil:
				in.log.Warn("not counted how many rows are behind on the new server", zap.String("table", name), zap.Error(err))
			case n > 0:
				text := fmt.Sprintf("%d%s rows of %s that are older than the last checkpoint are PENDING on the new server; those that were SENT are published again",
					n, map[bool]string{true: " or more"}[more], name)
				in.log.Warn(text)
				in.past.Mark(time.Now(), "failover", text)
			}
		}
	}
}

// untried counts the PENDING rows of a table that are older than an age, due, and were never tried.
func untried(ctx context.Context, rows tableRows, name string, age time.Duration) (n int, more bool, err error) {
	q := query.Listing{State: outbox.Pending.String(), OlderThan: age, Limit: 1000, Scan: true}
	for {
		page, err := rows.List(ctx, name, q)
		if err != nil {
			return n, false, err
		}
		for i := range page.Rows {
			if r := &page.Rows[i]; r.Attempts == 0 && r.Due.IsZero() {
				n++
			}
		}
		if q.After = page.Next; q.After == "" || n >= 10_000 {
			return n, q.After != "", nil
		}
	}
}
