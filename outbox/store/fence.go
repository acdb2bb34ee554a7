package store

import (
	"context"
	"errors"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// errFenced says that a statement was not sent because the lease is not valid.
var errFenced = errors.New("the lease is not valid")

// execFenced is exec for a completion. Attempts and failures are the judgement of the relay that holds the lease: their statements are
// sent only while it is valid, which is checked when the connection is there, right before each attempt. That a row is sent, or that
// a claim is given back, is true whichever relay writes it.
func (s completions) execFenced(ctx context.Context, completion outbox.Action, st *table.Statement) (matched int64, err error) {
	if s.may == nil || !counted(completion) {
		return s.exec(ctx, st)
	}
	text := st.String()
	err = s.again(ctx, func() error {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // gives it back to the pool
		if !s.may() {
			return errFenced
		}
		result, err := conn.ExecContext(ctx, text, st.Args...)
		if err != nil {
			return err
		}
		matched, err = result.RowsAffected()
		return err
	})
	return matched, err
}

// dropFenced drops the attempts and failures of rows while the lease is not valid, and releases their claims, each under the
// guard of its claim: a relay that took over has claimed them again. A row that cannot be released does no harm to the others:
// its claim expires.
func (s completions) dropFenced(ctx context.Context, t *mapped, rows []outbox.Completion) ([]outbox.WriteError, error) {
	dropped := unwritable(rows, errFenced.Error())
	var claimed []outbox.Completion
	for i := range dropped {
		if dropped[i].Fenced = true; rows[i].Claim != "" {
			claimed = append(claimed, rows[i])
		}
	}
	if len(claimed) == 0 {
		return dropped, nil
	}
	_, err := s.settle(ctx, t, outbox.ActionRelease, claimed)
	return dropped, err
}
