package fallback

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Candidates show rows that a sweep may take.
type Candidates interface {
	// Due selects a page of identities behind a cursor; a page may be empty before the end.
	Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error)
}

// Rows are the mapped tables, on the primary. table.Store implements it.
type Rows interface {
	Candidates
	// Upcoming shows the PENDING rows that become due between from and to from now, the first to become due first, limit at most.
	Upcoming(ctx context.Context, name string, from, to time.Duration, limit int) ([]outbox.Candidate, error)
	// States reads rows by primary key; rows that do not exist are missing from the answer.
	States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error)
	// Claim makes rows of one table SENDING under a token of its own, those that still show the state of the candidate.
	Claim(ctx context.Context, rows []outbox.Candidate) (token string, err error)
	// Pieces divides claimed rows into groups that are read back one after the other, so that the rows of a group fit into memory.
	Pieces(ctx context.Context, ids []outbox.Identity) ([][]outbox.Identity, error)
	// ReadBack reads the rows that show the token; others are missing from the answer. rejected are the FAILED completions of rows
	// that cannot become a message.
	ReadBack(ctx context.Context, token string, ids []outbox.Identity) (messages []*outbox.Message, rejected []outbox.Completion, err error)
}
