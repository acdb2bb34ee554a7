package table

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Republish sets rows that are SENT back to PENDING, due at once and with no attempt used, so that a sweep publishes them again under
// their message ids. A row that is not SENT any more, that is another one by now, or that another session has locked is left alone. It returns how many were set
// back, also with an error. A row whose change the server refuses is an error that names it, after all others were set back.
func (s *Store) Republish(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKeyTold(identities, func(t *Table, chunk []outbox.Identity) error {
		matched, err := changeFree(ctx, s, t, chunk, func(free []outbox.Identity) *statement { return t.setBack(outbox.Sent, free) })
		n += matched
		return err
	})
	if err != nil {
		err = fmt.Errorf("set rows back to PENDING: %w", err)
	}
	return n, err
}

// Retry sets rows that are FAILED back to PENDING, due at once and with no attempt used, and lets PENDING rows that wait after an attempt
// wait no longer; these keep the count of their attempts. Any other row is left alone: a delayed message above all, which was never
// tried, and a row that another session has locked. A row whose change the server refuses is an error that names it, after all others. It returns how many rows were changed, also with an error.
func (s *Store) Retry(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKeyTold(identities, func(t *Table, chunk []outbox.Identity) error {
		if t.fails() {
			matched, err := changeFree(ctx, s, t, chunk, func(free []outbox.Identity) *statement { return t.setBack(outbox.Failed, free) })
			if n += matched; err != nil {
				return err
			}
		}
		matched, err := s.hasten(ctx, t, chunk)
		n += matched
		return err
	})
	if err != nil {
		err = fmt.Errorf("retry rows: %w", err)
	}
	return n, err
}

// hasten lets PENDING rows that were refused be due now.
func (s *Store) hasten(ctx context.Context, t *Table, identities []outbox.Identity) (n int64, err error) {
	if t.has(NextRetryTime) && !t.has(RetryCount) { // the waits outside the table show which of them were tried
		identities = slices.DeleteFunc(slices.Clone(identities), func(id outbox.Identity) bool {
			w, tried := s.waits.Wait(id)
			return !tried || w.Attempts == 0
		})
	}
	switch {
	case len(identities) == 0:
		return 0, nil
	case t.has(NextRetryTime):
		var drop []outbox.Identity // of rows that wait over the end of summer time
		for _, id := range identities {
			if _, waits := s.waits.Wait(id); waits && t.has(RetryCount) {
				drop = append(drop, id)
			}
		}
		if len(drop) > 0 {
			if err := s.waits.Keep(nil, drop); err != nil {
				return 0, err
			}
		}
		return changeFree(ctx, s, t, identities, t.dueNow)
	}
	rows, err := s.byIDs(ctx, t, identities)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	var put []Waiting
	for _, r := range rows {
		if w, waits := s.waits.Wait(r.Identity); waits && r.Status == outbox.Pending && w.Due.After(now) {
			put = append(put, Waiting{r.Identity, Wait{Due: now, Attempts: w.Attempts}})
		}
	}
	if len(put) == 0 {
		return 0, nil
	}
	return int64(len(put)), s.waits.Keep(put, nil)
}

// dueNow counts rows by found-rows semantics, so that it names only rows that it changes.
func (t *Table) dueNow(identities []outbox.Identity) *statement {
	s := &statement{}
	due := t.column(NextRetryTime)
	id := func(i int) string { return identities[i].ID }
	t.change(s, len(identities), id)
	s.add(due, " = ", t.now(NextRetryTime), " - INTERVAL 1 SECOND") // a column of whole seconds rounds up
	t.assignCommon(s)
	t.where(s, len(identities), id)
	t.statusIn(s, outbox.Pending)
	s.add(" AND ", due, " > ", t.now(NextRetryTime))
	if t.has(RetryCount) {
		s.add(" AND ", t.retryCount(), " > 0")
	}
	t.sameRows(s, identities)
	return s
}

// setBack sets rows of one status back to PENDING.
func (t *Table) setBack(from outbox.Status, identities []outbox.Identity) *statement {
	s := &statement{}
	id := func(i int) string { return identities[i].ID }
	t.change(s, len(identities), id)
	s.add(t.column(StatusCode), " = ")
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
	t.where(s, len(identities), id)
	t.statusIn(s, from)
	t.sameRows(s, identities)
	return s
}

// sameRows guards with rows of (id, message id).
func (t *Table) sameRows(s *statement, identities []outbox.Identity) {
	s.add(" AND (", t.column(ID), ", ", t.messageID(), ") IN (")
	s.list(len(identities), func(i int) {
		s.add("(")
		t.id(s, identities[i].ID)
		s.add(", ")
		s.bytes(identities[i].MessageID)
		s.add(")")
	})
	s.add(")")
}
