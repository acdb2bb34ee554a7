package table

import (
	"context"
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A lock that somebody holds on one row (a long transaction, a consumer at work, a session that was forgotten) fails the
// statement that names the row after the session's innodb_lock_wait_timeout, and with it hundreds of others. The rows are
// then told apart by a read that waits for no lock.

// apart tells rows that nobody has locked at this moment from all others, which are locked or gone. The locks that it takes
// end with its statement. cause is the error of the statement that waited; it comes back where the rows cannot be told apart,
// as when a change of the table holds its lock.
func apart[R any](ctx context.Context, s *Store, t *Table, rows []R, id func(*R) string, cause error) (free, held []R, err error) {
	query := t.selectState()
	query.add(" FROM ", t.quoted, " FORCE INDEX (PRIMARY) WHERE ")
	t.idIn(query, len(rows), func(i int) string { return id(&rows[i]) })
	query.add(" FOR UPDATE SKIP LOCKED") // MySQL 8.0.1, MariaDB 10.6
	found := map[string]bool{}
	err = s.again(ctx, func() error {
		candidates, err := s.candidates(ctx, t, query)
		for _, c := range candidates {
			found[c.ID] = true
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%w (and the rows cannot be told apart: %w)", cause, err)
	}
	for i := range rows {
		if found[id(&rows[i])] {
			free = append(free, rows[i])
		} else {
			held = append(held, rows[i])
		}
	}
	return free, held, nil
}

func behindLock(rows []outbox.Completion) []outbox.WriteError {
	out := unwritable(rows, "another session holds the lock of the row")
	for i := range out {
		out[i].Retryable = true
	}
	return out
}

// claimChunk marks rows of one kind as SENDING. Rows behind somebody's lock are left to the next sweep.
func (s *Store) claimChunk(ctx context.Context, t *Table, how claim, stamp string, rows []outbox.Candidate) error {
	_, err := s.exec(ctx, t.claim(how, stamp, rows))
	if !server.LockWait(err) {
		return err
	}
	free, _, err := apart(ctx, s, t, rows, func(c *outbox.Candidate) string { return c.ID }, err)
	if err != nil {
		return err
	}
	if len(free) == 0 {
		return nil
	}
	_, err = s.exec(ctx, t.claim(how, stamp, free))
	return err
}
