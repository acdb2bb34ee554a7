package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/reserved"
)

// republishPage is how many rows are read and published at a time.
const republishPage = 100

var errNotTaken = errors.New("the broker takes no messages, or the relay is paused: `canal-outbox status` says which")

// Republish publishes rows again that are SENT, under their message ids and as they stand in their tables now. They stay SENT, whatever
// the broker says: it is the way that redelivery goes. Rows that are not SENT any more or are in the relay's hands are left alone. It
// returns how many were handed to the sink, also with an error.
func (r *Relay) Republish(ctx context.Context, rows []outbox.Candidate) (n int, err error) {
	if !r.Ready() || r.parts.Again == nil {
		return 0, ErrNotRunning
	}
	for page := range slices.Chunk(rows, republishPage) {
		if !r.Flow.Takes() {
			return n, errNotTaken
		}
		taken, err := r.republish(ctx, page)
		if n += taken; err != nil {
			return n, fmt.Errorf("publish SENT rows again: %w", err)
		}
	}
	return n, nil
}

func (r *Relay) republish(ctx context.Context, page []outbox.Candidate) (taken int, err error) {
	free, _ := r.Flow.Reserve(page)
	_, err = reserved.Publish(ctx, r.Flow, free, reserved.Steps{
		Pieces: r.parts.Again.Rows.Pieces,
		Read: func(ctx context.Context, ids []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error) {
			messages, err := r.parts.Again.Rows.ReadSent(ctx, ids)
			return messages, nil, err
		},
		Taken: func(*outbox.Message, outbox.Candidate) { taken++ },
	})
	return taken, err
}
