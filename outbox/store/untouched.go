package store

import (
	"context"
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Untouched reports whether each of these rows is in its table, by id and message id, as PENDING and due and was never refused: what States
// would show of every one of them, in one number. It may say no where States shows nothing else, never yes where it does. One row that cannot be read makes the answer no.
func (s finder) Untouched(ctx context.Context, identities []outbox.Identity) (bool, error) {
	untouched := true
	refused, err := s.byKeyApart(identities, func(t *mapped, chunk []outbox.Identity) error {
		if !untouched || s.waitsForAny(t, chunk) {
			untouched = false
			return nil
		}
		query := t.countUntouched(chunk)
		var n int
		err := query.One(ctx, s.db, &n)
		untouched = n == len(chunk)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("count the rows that were never tried: %w", err)
	}
	return untouched && len(refused) == 0, nil
}

// waitsForAny reports whether one of the rows has a wait that its table does not show.
func (s finder) waitsForAny(t *mapped, rows []outbox.Identity) bool {
	if !t.KeepsWaits() {
		return false
	}
	for _, row := range rows {
		if _, waits := s.waits.Wait(row); waits {
			return true
		}
	}
	return false
}

// countUntouched counts each row once, by its primary key, so that a row which is named twice or under two message ids is missing.
func (t *mapped) countUntouched(rows []outbox.Identity) *table.Statement {
	s := &table.Statement{}
	row := func(i int) *outbox.Identity { return &rows[i] }
	s.Grow(textSize(len(rows), row))
	s.Add("SELECT COUNT(*)")
	t.FromKeys(s, len(rows), func(i int) string { return rows[i].ID })
	s.Add(" AND ")
	if t.Type(table.StatusCode).Kind() == table.KindInteger {
		t.statusIn(s, outbox.Pending)
	} else { // no collation has a say
		s.Add(t.Exact(table.StatusCode), " = ")
		s.Bytes(t.Mapping().Codes[outbox.Pending])
	}
	s.Add(" AND ", t.wait(), " <= 0 AND ", t.RetryCount(), " = 0")
	t.identityIn(s, len(rows), row)
	return s
}
