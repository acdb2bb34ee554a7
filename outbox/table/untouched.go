package table

import (
	"context"
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Untouched reports whether each of these rows is in its table, by id and message id, as PENDING and due and was never refused: what States
// would show of every one of them, in one number. It may say no where States shows nothing else, never yes where it does. One row that cannot be read makes the answer no.
func (s *Store) Untouched(ctx context.Context, identities []outbox.Identity) (bool, error) {
	untouched := true
	refused, err := s.byKeyApart(identities, func(t *Table, chunk []outbox.Identity) error {
		if !untouched || s.waitsForAny(t, chunk) {
			untouched = false
			return nil
		}
		query := t.countUntouched(chunk)
		var n int
		err := s.db.QueryRowContext(ctx, query.text.String(), query.args...).Scan(&n)
		untouched = n == len(chunk)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("count the rows that were never tried: %w", err)
	}
	return untouched && len(refused) == 0, nil
}

// waitsForAny reports whether one of the rows has a wait that its table does not show.
func (s *Store) waitsForAny(t *Table, rows []outbox.Identity) bool {
	if !t.keepsWaits() {
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
func (t *Table) countUntouched(rows []outbox.Identity) *statement {
	s := &statement{}
	size := 1 << 10
	for i := range rows {
		size += 3*len(rows[i].ID) + 2*len(rows[i].MessageID) + 16
	}
	s.text.Grow(size)
	s.add("SELECT COUNT(*) FROM ", t.quoted, " FORCE INDEX (PRIMARY) WHERE ")
	t.idIn(s, len(rows), func(i int) string { return rows[i].ID })
	s.add(" AND ")
	if t.columns[StatusCode].kindOf() == integer {
		t.statusIn(s, outbox.Pending)
	} else { // no collation has a say
		s.add(t.exact(StatusCode), " = ")
		s.bytes(t.mapping.Codes[outbox.Pending])
	}
	s.add(" AND ", t.wait(), " <= 0 AND ", t.retryCount(), " = 0")
	if t.columns[ID].kindOf() == integer {
		t.identityAsText(s, len(rows), func(i int) *outbox.Identity { return &rows[i] })
		return s
	}
	t.sameRows(s, rows)
	return s
}
