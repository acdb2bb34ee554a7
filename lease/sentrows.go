package lease

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// SentRows is what a relay that takes over must know to send no row again. Rows are published, and their table does not show them as SENT:
// it refuses the status, or another session holds the lock. What the holder may have sent in its last seconds is in the topics: Life says when.
type SentRows struct {
	Rows []outbox.Identity
	More int          // number of rows that are not listed
	Life *outbox.Life // nil: the holder has ended in order, or leaves no signs of life
}

// sentRow is a row in the lease table. Keys and message ids may be any bytes.
type sentRow struct {
	Table   string `json:"table"`
	ID      []byte `json:"id"`
	Message []byte `json:"message"`
}

type sentRows struct {
	Rows []sentRow    `json:"rows"`
	More int          `json:"more"`
	Life *outbox.Life `json:"life,omitempty"`
}

// Leave writes the sent rows of a holder into its row; empty ones clear them. Without a row it writes nothing.
func (t *Table) Leave(ctx context.Context, holder string, sent SentRows) error {
	var text any
	if len(sent.Rows)+sent.More > 0 || sent.Life != nil {
		list := sentRows{More: sent.More, Life: sent.Life}
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
	rows, err := t.db.QueryContext(ctx, "SELECT epoch, table_names, sent_rows FROM "+t.name+" WHERE holder <> ? AND sent_rows IS NOT NULL", holder)
	if err != nil {
		return left, t.sentError(err)
	}
	defer rows.Close()
	for rows.Next() {
		var term uint64
		var names, text []byte
		if err := rows.Scan(&term, &names, &text); err != nil {
			return left, t.errorf("read", err)
		}
		var of []string
		if err := json.Unmarshal(names, &of); err != nil || !slices.ContainsFunc(of, func(name string) bool { return slices.Contains(tables, name) }) {
			continue // a relay of other tables; Read reports names that no relay has written
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
		left.Life = whole(left.Life, list.Life)
	}
	if err := rows.Err(); err != nil {
		return left, t.errorf("read", err)
	}
	return left, nil
}

// whole is a life that covers both; nil is none.
func whole(a, b *outbox.Life) *outbox.Life {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	both := *a
	if b.AliveAt.After(both.AliveAt) {
		both.AliveAt = b.AliveAt
	}
	if b.SettledAt.Before(both.SettledAt) {
		both.SettledAt = b.SettledAt
	}
	if b.ClaimsAt.Before(both.ClaimsAt) {
		both.ClaimsAt = b.ClaimsAt
	}
	return &both
}

// Forget removes the signs of life of all holders: rows are set back that are to be sent again though their topics have them. A relay that is
// active leaves its next one. Without a lease table, or its column, there is nothing to forget.
func (t *Table) Forget(ctx context.Context) error {
	_, err := t.db.ExecContext(ctx, "UPDATE "+t.name+" SET sent_rows = JSON_REMOVE(sent_rows, '$.life') WHERE JSON_VALID(sent_rows)")
	switch server.Code(err) {
	case 1146, 1049, 1054, 1142, 1143, 1044: // no table, schema or column, or no right to use it: a relay of this account runs without a lease
		return nil
	}
	if err != nil {
		return t.errorf("forget the signs of life in", err)
	}
	return nil
}

// sentError adds what to do when an older table lacks the column.
func (t *Table) sentError(err error) error {
	if server.Code(err) == 1054 { // BAD_FIELD_ERROR
		return fmt.Errorf("the lease table lacks a column; run %s: %w", AddSentColumn(t.name), err)
	}
	return t.errorf("hand over through", err)
}
