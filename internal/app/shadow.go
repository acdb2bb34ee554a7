package app

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// shadowRows are the tables of a relay that writes nothing: completions go to the shadow, and sweeps find no row.
type shadowRows struct {
	relay.Rows
	shadow *shadow.Shadow
}

// Apply implements ack.Tables.
func (r shadowRows) Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	return r.shadow.Apply(ctx, batch)
}

// shadowState does not remember rows as sent that were not, and whose tables cannot say so: a relay that goes back would skip them.
type shadowState struct{ relay.State }

// Commit implements ack.Journal.
func (s shadowState) Commit(sent []outbox.Completion, written []outbox.Identity, checkpoint *outbox.Position, generation uint64) error {
	rest := slices.DeleteFunc(slices.Clone(sent), func(c outbox.Completion) bool { return c.LogOnly })
	return s.State.Commit(rest, written, checkpoint, generation)
}

// Due implements fallback.Rows.
func (r shadowRows) Due(context.Context, string, table.Cursor, table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	return nil, table.CursorBehind("", true), nil
}

// Upcoming implements fallback.Rows.
func (r shadowRows) Upcoming(context.Context, string, time.Duration, time.Duration, int) ([]outbox.Candidate, error) {
	return nil, nil
}

// Claim implements fallback.Rows: a row whose time has come would be marked as SENDING.
func (r shadowRows) Claim(context.Context, []outbox.Candidate) (string, error) { return "", nil }

// ReadBack implements fallback.Rows: nothing was claimed.
func (r shadowRows) ReadBack(context.Context, string, []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error) {
	return nil, nil, nil
}
