package fallback

import (
	"context"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Rows are the mapped tables, on the primary. table.Store implements it.
type Rows interface {
	// Due selects a page of identities behind a cursor; a page may be empty before the end.
	Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error)
	// Claim makes rows of one table SENDING under a token of its own, those that still show the state of the candidate.
	Claim(ctx context.Context, rows []outbox.Candidate) (token string, err error)
	// ReadBack reads the rows that show the token; others are missing from the answer. rejected are the FAILED completions of rows
	// that cannot become a message.
	ReadBack(ctx context.Context, token string, ids []outbox.Identity) (messages []*outbox.Message, rejected []outbox.Completion, err error)
}
