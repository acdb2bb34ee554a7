package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// This file is for the statements of rows that are final: those that go out again, and those that leave the table.

// final draws a move of redelivery or of retention. All ages lie half a second away from those of rows.
func (s *script) final() move {
	age := pick(s.dice, 0, 3500*time.Millisecond, 12500*time.Millisecond, 30*time.Minute)
	status := pick(s.dice, outbox.Sent, outbox.Failed)
	ids := s.some(6)
	switch s.n(6) {
	case 0, 1:
		q := table.FinalQuery{Status: status, Age: age, Limit: s.in(1, 5)}
		return move{what: fmt.Sprintf("final %+v", q), byUs: func(ctx context.Context, st store) (string, error) {
			var all []outbox.Candidate
			for at := (table.Cursor{}); !at.Done(); {
				page, next, err := st.Final(ctx, tableName, at, q)
				if err != nil {
					return "", err
				}
				all, at = append(all, page...), next
			}
			return shownAll(all, func(c outbox.Candidate) string { return fmt.Sprint(c.ID, c.MessageID, c.Status, c.RetryCount) }), nil
		}}
	case 2:
		return move{what: fmt.Sprint("retry failed ", ids), byUs: func(ctx context.Context, st store) (string, error) {
			n, err := st.RetryFailed(ctx, ids)
			return fmt.Sprint(n), err
		}}
	case 3:
		return move{what: fmt.Sprint("read sent ", ids), byUs: func(ctx context.Context, st store) (string, error) {
			found, err := st.ReadSent(ctx, ids)
			return shownAll(found, func(m *outbox.Message) string {
				return fmt.Sprint(m.ID, m.MessageID, m.Topic, m.ShardingKey, m.DueAt.IsZero())
			}), err
		}}
	case 4:
		return move{what: fmt.Sprint("mark done ", ids), byUs: func(ctx context.Context, st store) (string, error) {
			n, err := st.MarkDone(ctx, ids)
			return fmt.Sprint(n), err
		}}
	}
	return s.expire(table.Expiry{Status: status, Age: age}, ids)
}

// expire takes out what a walk has found, and rows that must stay.
func (s *script) expire(e table.Expiry, others []outbox.Identity) move {
	return move{what: fmt.Sprintf("expire %+v", e), byUs: func(ctx context.Context, st store) (string, error) {
		var found []string
		for page := (table.ExpiredPage{}); !page.Done; {
			var err error
			if page, err = st.Expired(ctx, tableName, page.Next, []table.Expiry{e}); err != nil {
				return "", err
			}
			found = append(found, page.IDs[0]...)
		}
		all := slices.Clone(found)
		for _, id := range others {
			if !slices.Contains(all, id.ID) {
				all = append(all, id.ID)
			}
		}
		left, err := st.Expire(ctx, tableName, e, all)
		return fmt.Sprintf("%v of %d: %+v", found, len(all), left), err
	}}
}
