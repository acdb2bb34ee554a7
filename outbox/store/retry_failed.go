package store

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// RetryFailed sets rows that are FAILED back to PENDING, due since they failed first and with the attempts that they have used, so that a sweep publishes them
// once more and one refusal makes a row whose attempts were spent FAILED again. A row that is not FAILED any more, that is another one by
// now, or that another session has locked is left alone, and so is one whose change the server refuses, which is noted as refused. It returns how many were set back, also with an error.
func (s changes) RetryFailed(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKey(identities, func(t *mapped, chunk []outbox.Identity) error {
		if !t.Fails() {
			return nil
		}
		if err := s.keepLastAttempt(t, chunk); err != nil {
			return err
		}
		matched, err := changeFree(ctx, s.tables, t, chunk, ownIdentity, t.retryFailed)
		n += matched
		return err
	})
	if err != nil {
		err = fmt.Errorf("set FAILED rows back to PENDING: %w", err)
	}
	return n, err
}

// spent is a count of attempts at which every configuration has none left.
const spent = 1000

// keepLastAttempt notes the attempts of rows whose table does not count them: they were forgotten when the rows became FAILED.
func (s changes) keepLastAttempt(t *mapped, identities []outbox.Identity) error {
	if t.Has(table.RetryCount) {
		return nil
	}
	put := make([]table.Waiting, len(identities))
	for i, id := range identities {
		put[i] = table.Waiting{Identity: id, Wait: table.Wait{Due: time.Now(), Attempts: spent}}
	}
	return s.waits.Keep(put, nil)
}

func (t *mapped) retryFailed(identities []outbox.Identity) *table.Statement {
	return t.changingRows(identities, outbox.Failed, func(s *table.Statement) {
		s.Add(t.Column(table.StatusCode), " = ")
		t.Code(s, outbox.Pending)
		if t.Has(table.NextRetryTime) {
			due := t.Now(table.NextRetryTime) + " - INTERVAL 1 SECOND" // a column of whole seconds rounds up
			if failed := t.failedAt(); failed != "" {
				next := t.Column(table.NextRetryTime)
				due = "COALESCE(LEAST(COALESCE(" + next + ", " + failed + "), " + failed + ", " + due + "), " + due + ")"
			}
			s.Add(", ", t.Column(table.NextRetryTime), " = ", due)
		}
	}, nil)
}
