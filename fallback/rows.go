package fallback

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Query is what a sweep looks for in one table, all ages by the database's clock.
type Query struct {
	Threshold     time.Duration // PENDING rows without a due time from this age on
	Horizon       time.Duration // PENDING rows that are due within this time
	ExpiredClaims time.Duration // SENDING rows with a claim of this age or without a stamp; 0: all
	Limit         int
}

// Rows are the mapped tables, on the primary.
type Rows interface {
	// Due selects a page of identities behind a cursor.
	Due(ctx context.Context, table string, after Cursor, q Query) ([]outbox.Candidate, Cursor, error)
	// Claim makes rows SENDING under a stamp of its own where they still show the state of the candidate.
	Claim(ctx context.Context, rows []outbox.Candidate) (stamp string, err error)
	// ReadBack reads the rows that show the stamp; others are missing from the answer.
	ReadBack(ctx context.Context, stamp string, ids []outbox.Identity) ([]*outbox.Message, error)
}

// Cursor is a place in the order of a sweep's query.
type Cursor struct {
	Last outbox.Candidate
	Done bool
}
