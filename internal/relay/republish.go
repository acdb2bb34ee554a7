package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
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
	open := make(map[outbox.Identity]outbox.Candidate, len(free))
	ids := make([]outbox.Identity, len(free))
	for i, c := range free {
		open[c.Identity], ids[i] = c, c.Identity
	}
	defer func() { r.Flow.Release(slices.Collect(maps.Values(open))) }()
	pieces, err := r.parts.Again.Rows.Pieces(ctx, ids)
	if err != nil {
		return 0, err
	}
	for _, piece := range pieces {
		messages, err := r.parts.Again.Rows.ReadSent(ctx, piece)
		if err != nil {
			return taken, err
		}
		for _, m := range messages {
			m.Entry = open[m.Identity].Entry
		}
		n, err := r.Flow.Publish(ctx, messages, nil)
		for _, m := range messages[:n] {
			delete(open, m.Identity)
		}
		if taken += n; err != nil {
			return taken, err
		}
	}
	return taken, nil
}
