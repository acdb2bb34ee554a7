package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// SentRows are published rows that their table does not show as SENT: it refuses the status, or another session holds the lock.
// The broker has them, so a relay that takes over must not send them.
type SentRows struct {
	Rows []outbox.Identity
	More int // number of rows that are not listed
}

// sentRow is a row in the lease table. Keys and message ids may be any bytes.
type sentRow struct {
	Table   string `json:"table"`
	ID      []byte `json:"id"`
	Message []byte `json:"message"`
}

type sentRows struct {
	Rows []sentRow `json:"rows"`
	More int       `json:"more"`
}

// Leave writes the sent rows of a holder into its row; an empty list clears them. Without a row it writes nothing.
func (t *Table) Leave(ctx context.Context, holder string, sent SentRows) error {
	var text any
	if len(sent.Rows)+sent.More > 0 {
		list := sentRows{More: sent.More}
		for _, r := range sent.Rows {
			list.Rows = append(list.Rows, sentRow{Table: r.Table, ID: []byte(r.ID), Message: []byte(r.MessageID)})
		}
		encoded, err := json.Marshal(list)
		if err != nil {
			return err
		}
		text = string(encoded)
	}
	if _, err := t.db.ExecContext(ctx, "UPDATE "+t.name+" SET sent_rows = ? WHERE holder = ?", text, holder); err != nil {
		return t.sentError(err)
	}
	return nil
}

// Left returns the sent rows that other holders have left for these tables. A list that cannot be read is an error: without it
// rows would be sent again.
func (t *Table) Left(ctx context.Context, holder string, tables []string) (left SentRows, err error) {
	rows, err := t.db.QueryContext(ctx, "SELECT epoch, sent_rows FROM "+t.name+" WHERE holder <> ? AND sent_rows IS NOT NULL", holder)
	if err != nil {
		return left, t.sentError(err)
	}
	defer rows.Close()
	for rows.Next() {
		var term uint64
		var text []byte
		if err := rows.Scan(&term, &text); err != nil {
			return left, t.errorf("read", err)
		}
		var list sentRows
		if err := json.Unmarshal(text, &list); err != nil {
			return left, fmt.Errorf("lease table %s, epoch %d: sent_rows is not what a relay writes: %w; set it to NULL, then the rows that it listed are sent again", t.name, term, err)
		}
		for _, r := range list.Rows {
			if slices.Contains(tables, r.Table) {
				left.Rows = append(left.Rows, outbox.Identity{Table: r.Table, ID: string(r.ID), MessageID: string(r.Message)})
			}
		}
		left.More += list.More
	}
	if err := rows.Err(); err != nil {
		return left, t.errorf("read", err)
	}
	return left, nil
}

// sentError adds what to do when an older table lacks the column.
func (t *Table) sentError(err error) error {
	if server.Code(err) == 1054 { // BAD_FIELD_ERROR
		return fmt.Errorf("the lease table lacks a column; run %s: %w", AddSentColumn(t.name), err)
	}
	return t.errorf("hand over through", err)
}
