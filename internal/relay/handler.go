package relay

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Why the checkpoint was moved other than by an operator, in the words of its history.
const (
	ReasonFailover  = "failover"
	ReasonTakenOver = "taken over from another relay"
	ReasonGTIDs     = "GTID set of the position"
	ReasonGap       = "gap: " // and its cause
)

// failedOver is logged when the relay continues on a copy of the recorded server without GTIDs.
const failedOver = "the source failed over to a copy of the recorded server, without GTIDs: reading from its end, sweeping older rows; rows that were " +
	"SENT and are PENDING there are published again"

// handler is what the reader talks to: the flow of transactions goes straight to the pipeline, what changes the source or
// the position is decided here. Its methods are called by the reader, one at a time.
type handler struct {
	relay *Relay
	bare  bool // the reader was started from a position without GTIDs, and no stream was opened since
}

// Connected opens a stream. After a failover the positions of the old server mean nothing: the mark continues from the GTID set
// alone, and a full sweep repairs what was open then. The position is moved before the gate accepts the new server: a sweep in between
// would compare positions of two servers.
func (h *handler) Connected(ctx context.Context, from, windowEnd outbox.Position, id server.ID, failover bool) error {
	r := h.relay
	bare := h.bare
	h.bare = false
	switch {
	case failover:
		at := outbox.Position{GTIDs: from.GTIDs}
		if err := r.reset(id, at, ReasonFailover); err != nil {
			return fmt.Errorf("record the failover: %w", err)
		}
		r.log.Warn("the source failed over to another server with the same history", zap.Stringer("server", id))
		r.triggers.Full()
	case bare && from.GTIDs != "":
		// The reader has found the set that belongs to a file and an offset. Nothing is open yet that the move could forget.
		if err := r.reset(id, from, ReasonGTIDs); err != nil {
			return fmt.Errorf("record the GTID set of %s: %w", from, err)
		}
	}
	r.parts.Gate.accept(id)
	r.setOpen(true)
	if err := r.Flow.Connected(ctx, from, windowEnd); err != nil {
		r.setOpen(false)
		return err
	}
	return nil
}

// Offer hands one transaction to the pipeline.
func (h *handler) Offer(ctx context.Context, txn *outbox.Txn) error {
	return h.relay.Flow.Offer(ctx, txn)
}

// Idle reports that the server has nothing behind pos.
func (h *handler) Idle(pos outbox.Position) { h.relay.Flow.Idle(pos) }

// Disconnected is called at the end of a stream. The sweep sees by itself that the log does not continue.
func (h *handler) Disconnected(error) { h.relay.setOpen(false) }

// Gap continues from the server's position, read before the sweep, records that durably and requests a full sweep.
func (h *handler) Gap(ctx context.Context, gap outbox.Gap) (outbox.Position, error) {
	r := h.relay
	info, end, err := r.parts.Source.Look(ctx)
	if err != nil {
		return outbox.Position{}, fmt.Errorf("gap (%s): the server's position is needed: %w", gap.Cause, err)
	}
	// Another server may have taken the address since the reader checked: then the gap is not of this server, and the reader
	// must check again.
	recorded, known := r.parts.State.Source()
	at, _ := r.parts.State.Checkpoint()
	if known {
		switch relation, why, descends, err := r.relation(ctx, recorded, at, info, end); {
		case err != nil:
			return outbox.Position{}, fmt.Errorf("gap (%s): %w", gap.Cause, err)
		case relation == server.Foreign && !(descends && gap.Cause == outbox.GapFailover):
			return outbox.Position{}, fmt.Errorf("gap (%s): another server answers: %s", gap.Cause, why)
		case gap.Cause == outbox.GapFailover:
			if err := r.follows(ctx, info.ID, end); err != nil {
				return outbox.Position{}, fmt.Errorf("gap (%s): %w", gap.Cause, err)
			}
			r.log.Warn(failedOver, zap.String("why", why))
		}
	}
	report := r.behind(gap.Cause)
	gap.To = end
	if err := r.recordGap(gap, info.ID, r.reset); err != nil {
		return outbox.Position{}, err
	}
	r.parts.Gate.accept(info.ID)
	report(ctx)
	r.triggers.Full()
	return end, nil
}

// read runs the reader and restarts it at the position to which an operator moved it.
func (r *Relay) read(ctx context.Context, from outbox.Position) error {
	ctx, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watchGate(ctx)
	}()
	defer func() {
		stop()
		<-watched
	}()
	for {
		err := r.follow(ctx, from)
		var foreign *canal.ForeignSourceError
		switch {
		case errors.As(err, &foreign):
			return &RefusedError{Why: foreign.Error()}
		case err != nil || ctx.Err() != nil:
			return err
		}
		next, err := r.moved()
		if err != nil {
			return err
		}
		from = next
	}
}
