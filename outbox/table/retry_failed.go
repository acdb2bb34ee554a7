package table

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// RetryFailed sets rows that are FAILED back to PENDING, due now and with the attempts that they have used, so that a sweep publishes them
// once more and one refusal makes a row whose attempts were spent FAILED again. A row that is not FAILED any more, that is another one by
// now, or that somebody has locked is left alone. It returns how many were set back, also with an error.
func (s *Store) RetryFailed(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKey(identities, func(t *Table, chunk []outbox.Identity) error {
		if !t.fails() {
			return nil
		}
		if err := s.keepLastAttempt(t, chunk); err != nil {
			return err
		}
		matched, err := s.execUnlocked(ctx, t, chunk, t.retryFailed)
		n += matched
		return err
	})
	if err != nil {
		err = fmt.Errorf("set FAILED rows back to PENDING: %w", err)
	}
	return n, err
}

// execUnlocked runs a statement on rows, without those that somebody has locked.
func (s *Store) execUnlocked(ctx context.Context, t *Table, rows []outbox.Identity, make func([]outbox.Identity) *statement) (matched int64, err error) {
	matched, err = s.exec(ctx, make(rows))
	if !server.LockWait(err) {
		return matched, err
	}
	free, _, err := apart(ctx, s, t, rows, func(i *outbox.Identity) string { return i.ID }, err)
	if err != nil || len(free) == 0 {
		return 0, err
	}
	return s.exec(ctx, make(free))
}

// spent is a count of attempts at which every configuration has none left.
const spent = 1000

// keepLastAttempt notes the attempts of rows whose table does not count them: they were forgotten when the rows became FAILED.
func (s *Store) keepLastAttempt(t *Table, identities []outbox.Identity) error {
	if t.has(RetryCount) {
		return nil
	}
	put := make([]Waiting, len(identities))
	for i, id := range identities {
		put[i] = Waiting{id, Wait{Due: time.Now(), Attempts: spent}}
	}
	return s.waits.Keep(put, nil)
}

func (t *Table) retryFailed(identities []outbox.Identity) *statement {
	return t.moveFinal(outbox.Failed, identities, func(s *statement) {
		t.code(s, outbox.Pending)
		if t.has(NextRetryTime) {
			s.add(", ", t.column(NextRetryTime), " = ", t.now(NextRetryTime), " - INTERVAL 1 SECOND") // a column of whole seconds rounds up
		}
	})
}

// moveFinal is an update of those of some rows that have a final status; to writes their next one, and what goes with it.
func (t *Table) moveFinal(from outbox.Status, identities []outbox.Identity, to func(*statement)) *statement {
	s := &statement{}
	s.add("UPDATE ", t.quoted, " FORCE INDEX (PRIMARY) SET ", t.column(StatusCode), " = ")
	to(s)
	t.assignCommon(s)
	s.add(" WHERE ")
	t.idIn(s, len(identities), func(i int) string { return identities[i].ID })
	s.add(" AND ")
	t.statusIn(s, from)
	t.sameRows(s, identities)
	return s
}
