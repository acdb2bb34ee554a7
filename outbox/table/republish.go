package table

import (
	"context"
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Republish sets rows that are SENT back to PENDING, due at once and with no attempt used, so that a sweep publishes them again under
// their message ids. A row that is not SENT any more, or that is another one by now, is left alone. It returns how many were set
// back, also with an error.
func (s *Store) Republish(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKey(identities, func(t *Table, chunk []outbox.Identity) error {
		matched, err := s.exec(ctx, t.republish(chunk))
		n += matched
		return err
	})
	if err != nil {
		err = fmt.Errorf("set rows back to PENDING: %w", err)
	}
	return n, err
}

func (t *Table) republish(identities []outbox.Identity) *statement {
	s := &statement{}
	s.add("UPDATE ", t.quoted, " FORCE INDEX (PRIMARY) SET ", t.column(StatusCode), " = ")
	t.code(s, outbox.Pending)
	if t.has(RetryCount) {
		s.add(", ", t.column(RetryCount), " = 0")
	}
	if t.has(NextRetryTime) {
		due := "NULL"
		if !t.columns[NextRetryTime].Nullable {
			due = t.now(NextRetryTime)
		}
		s.add(", ", t.column(NextRetryTime), " = ", due)
	}
	t.assignCommon(s)
	s.add(" WHERE ")
	t.idIn(s, len(identities), func(i int) string { return identities[i].ID })
	s.add(" AND ")
	t.statusIn(s, outbox.Sent)
	s.add(" AND (", t.column(ID), ", ", t.messageID(), ") IN (")
	s.list(len(identities), func(i int) {
		s.add("(")
		t.id(s, identities[i].ID)
		s.add(", ")
		s.bytes(identities[i].MessageID)
		s.add(")")
	})
	s.add(")")
	return s
}
