package store

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// ReadSent returns the rows that are SENT, whole, as messages that go out again; rows that are not SENT any more, are other ones by now or
// cannot become a message are missing, and so is a row that the server cannot show, which is noted as refused. Nothing in the table says that they are read: the caller owns them in the registry. It holds all
// bodies in memory.
func (s changes) ReadSent(ctx context.Context, identities []outbox.Identity) (out []*outbox.Message, err error) {
	err = s.byKey(identities, func(t *mapped, chunk []outbox.Identity) error {
		messages, _, err := s.readBack(ctx, t, outbox.Sent, "", chunk)
		if err == nil {
			out = append(out, messages...)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read rows that are SENT: %w", err)
	}
	for _, m := range out {
		m.Path, m.DueAt = outbox.PathRedelivery, time.Time{} // it was due long ago
	}
	return out, nil
}

// MarkDone sets rows that are SENT to the state of the consumers that ends their redelivery. A row that is not SENT any more, that is
// another one by now, or that another session has locked is left alone, and so is one whose change the server refuses, which is noted as refused. It returns how many were marked, also with an error.
func (s changes) MarkDone(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKey(identities, func(t *mapped, chunk []outbox.Identity) error {
		if t.Mapping().States[t.Mapping().Redeliver.Until] == "" {
			return nil
		}
		matched, err := changeFree(ctx, s.tables, t, chunk, ownIdentity, t.markDone)
		n += matched
		return err
	})
	if err != nil {
		err = fmt.Errorf("mark rows as consumed: %w", err)
	}
	return n, err
}

func (t *mapped) markDone(identities []outbox.Identity) *table.Statement {
	return t.changingRows(identities, outbox.Sent, func(s *table.Statement) {
		s.Add(t.Column(table.StatusCode), " = ")
		t.Literal(s, t.Mapping().States[t.Mapping().Redeliver.Until])
	}, nil)
}
