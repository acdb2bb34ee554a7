package fallback

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Candidates selects rows that a sweep may publish.
type Candidates interface {
	// Due selects a page of identities after a cursor; a page may be empty before the end.
	Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error)
}

// Rows are the mapped tables, on the primary. store.Store implements it.
type Rows interface {
	Candidates
	// Upcoming selects the PENDING rows that become due between from and to from now, in order of their due times, at most limit.
	Upcoming(ctx context.Context, name string, from, to time.Duration, limit int) ([]outbox.Candidate, error)
	// States reads rows by primary key; missing rows are not in the result.
	States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error)
	// Claim sets those rows of one table to SENDING, under a new token, that are still in the state of their candidate.
	Claim(ctx context.Context, rows []outbox.Candidate) (token string, err error)
	// Pieces divides claimed rows into groups that are read back one after the other, so that the rows of a group fit into
	// memory.
	Pieces(ctx context.Context, ids []outbox.Identity) ([][]outbox.Identity, error)
	// ReadBack reads the rows that have the token; others are not in the result. rejected are the FAILED completions of rows that
	// cannot become a message.
	ReadBack(ctx context.Context, token string, ids []outbox.Identity) (messages []*outbox.Message, rejected []outbox.Completion, err error)
}
