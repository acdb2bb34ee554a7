package app

import (
	"context"

	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// shadowRows are the tables of a relay that writes nothing: completions go to the shadow, and sweeps find no row.
type shadowRows struct {
	Rows
	shadow *shadow.Shadow
}

// Apply implements ack.Tables.
func (r shadowRows) Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	return r.shadow.Apply(ctx, batch)
}

// Due implements fallback.Rows.
func (r shadowRows) Due(context.Context, string, table.Cursor, table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	return nil, table.CursorBehind("", true), nil
}
