package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Republish sets rows that are SENT back to PENDING, due at once and with no attempt used, so that a sweep publishes them again under
// their message ids. A row that is not SENT any more, that is another one by now, or that another session has locked is left alone. It returns how many were set
// back, also with an error. A row whose change the server refuses is an error that names it, after all others were set back.
func (s changes) Republish(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKeyTold(identities, func(t *mapped, chunk []outbox.Identity) error {
		matched, err := changeFree(ctx, s.tables, t, chunk, ownIdentity, func(free []outbox.Identity) *table.Statement { return t.setBack(outbox.Sent, free) })
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
func (s changes) Retry(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKeyTold(identities, func(t *mapped, chunk []outbox.Identity) error {
		if t.Fails() {
			matched, err := changeFree(ctx, s.tables, t, chunk, ownIdentity, func(free []outbox.Identity) *table.Statement { return t.setBack(outbox.Failed, free) })
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
func (s changes) hasten(ctx context.Context, t *mapped, identities []outbox.Identity) (n int64, err error) {
	if t.Has(table.NextRetryTime) && !t.Has(table.RetryCount) { // the waits outside the table show which of them were tried
		identities = slices.DeleteFunc(slices.Clone(identities), func(id outbox.Identity) bool {
			w, tried := s.waits.Wait(id)
			return !tried || w.Attempts == 0
		})
	}
	switch {
	case len(identities) == 0:
		return 0, nil
	case t.Has(table.NextRetryTime):
		var drop []outbox.Identity // of rows that wait over the end of summer time
		for _, id := range identities {
			if _, waits := s.waits.Wait(id); waits && t.Has(table.RetryCount) {
				drop = append(drop, id)
			}
		}
		if len(drop) > 0 {
			if err := s.waits.Keep(nil, drop); err != nil {
				return 0, err
			}
		}
		return changeFree(ctx, s.tables, t, identities, ownIdentity, t.dueNow)
	}
	rows, err := s.states(ctx, t, identities, nil)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	var put []table.Waiting
	for _, r := range rows {
		if w, waits := s.waits.Wait(r.Identity); waits && r.Status == outbox.Pending && w.Due.After(now) {
			put = append(put, table.Waiting{Identity: r.Identity, Wait: table.Wait{Due: now, Attempts: w.Attempts}})
		}
	}
	if len(put) == 0 {
		return 0, nil
	}
	return int64(len(put)), s.waits.Keep(put, nil)
}

// dueNow counts rows by found-rows semantics, so that it names only rows that it changes.
func (t *mapped) dueNow(identities []outbox.Identity) *table.Statement {
	due := t.Column(table.NextRetryTime)
	return t.changingRows(identities, outbox.Pending, func(s *table.Statement) {
		s.Add(due, " = ", t.Now(table.NextRetryTime), " - INTERVAL 1 SECOND") // a column of whole seconds rounds up
	}, func(s *table.Statement) {
		s.Add(" AND ", due, " > ", t.Now(table.NextRetryTime))
		if t.Has(table.RetryCount) {
			s.Add(" AND ", t.RetryCount(), " > 0")
		}
	})
}

// setBack sets rows of one status back to PENDING.
func (t *mapped) setBack(from outbox.Status, identities []outbox.Identity) *table.Statement {
	return t.changingRows(identities, from, func(s *table.Statement) {
		s.Add(t.Column(table.StatusCode), " = ")
		t.Code(s, outbox.Pending)
		if t.Has(table.RetryCount) {
			s.Add(", ", t.Column(table.RetryCount), " = 0")
		}
		if t.Has(table.NextRetryTime) {
			due := "NULL"
			if !t.Type(table.NextRetryTime).Nullable {
				due = t.Now(table.NextRetryTime)
			}
			s.Add(", ", t.Column(table.NextRetryTime), " = ", due)
		}
	}, nil)
}
