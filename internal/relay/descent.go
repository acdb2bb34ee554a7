package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Descent decides whether a server without GTIDs is a copy of the recorded one, as a promoted replica is. An error means that this is not
// known yet.
type Descent func(ctx context.Context, recorded server.ID, checkpoint outbox.Position, now server.ID) (why string, descends bool, err error)

// oldestCopy is the largest part of the lease's last minutes that a copy may lack. A replica lacks seconds; a restored backup, or a copy
// that was made for tests, lacks more, and an operator must decide about it.
const oldestCopy = 10 * time.Minute

// Descends implements Descent with the lease table, which travels with the data: a row that names the recorded server was written there. At a
// start the rows count that the server had before this process took the lease, because Take renews its own row.
func (h *HeldLease) Descends(ctx context.Context, recorded server.ID, checkpoint outbox.Position, now server.ID) (why string, descends bool, err error) {
	if h.Traces == nil {
		return "", false, nil
	}
	return h.descends(ctx, recorded, now, lease.Followed{At: checkpoint, Seen: h.CheckpointAt()})
}

// descends compares the rows of a server with the newest position of the recorded server that is known here.
func (h *HeldLease) descends(ctx context.Context, recorded, now server.ID, known lease.Followed) (why string, descends bool, err error) {
	if h.Traces == nil || known.At.GTIDs != "" || recorded.Flavor != now.Flavor || now.UUID == "" {
		return "", false, nil
	}
	traces := h.traces
	// What this process has not begun on, it has not written to: see lease.Table.Renew.
	if h.begun.Load() || !slices.ContainsFunc(traces, func(t lease.Trace) bool { return t.On == now.UUID }) {
		if traces, err = h.Traces(ctx); err != nil {
			return "", false, fmt.Errorf("is %s a copy of %s: %w", now, recorded, err)
		}
	}
	for _, t := range traces {
		if t.On == now.UUID && t.Source.Same(now) && h.proof.On == now.UUID {
			t = h.proof.now() // a row was overwritten since, see Follow
		}
		if t.On == now.UUID && copiedFrom(t, recorded, now, known) {
			h.proof = proof{t, time.Now()}
			return fmt.Sprintf("was %s, is now %s, whose lease table was copied from there", recorded, now), true, nil
		}
	}
	return "", false, nil
}

// copiedFrom reports whether a row on the server now was written on the recorded one, not long before what is known of that one.
func copiedFrom(t lease.Trace, recorded, now server.ID, known lease.Followed) bool {
	if !t.Source.Same(recorded) || t.Source.Same(now) {
		return false
	}
	return t.At.Compare(known.At) >= 0 || !t.Released && t.Age-time.Since(known.Seen) <= oldestCopy
}

// proof is the row by which a copy was known last.
type proof struct {
	lease.Trace
	read time.Time
}

// now is the row as it would be read now: it gets as old as the checkpoint moves on, so a copy that is left again is not proved for ever.
func (p proof) now() lease.Trace {
	t := p.Trace
	t.Age += time.Since(p.read)
	return t
}

// copied reports whether the position of the last active process is of a server of which this one is a copy. It compares with what this
// process has read in the lease on that server, and with its own state; a process that has read nothing on that server accepts the copy.
func (h *HeldLease) copied(ctx context.Context, left lease.Resume, now server.ID) (bool, error) {
	known := h.Lease.Followed(left.Source)
	if recorded, _ := h.State.Source(); h.CheckpointAt != nil && recorded.Same(left.Source) {
		if own, _ := h.State.Checkpoint(); own.Compare(known.At) > 0 {
			known = lease.Followed{At: own, Seen: h.CheckpointAt()}
		}
	}
	known.At.GTIDs = left.At.GTIDs
	_, copied, err := h.descends(ctx, left.Source, now, known)
	return copied, err
}

var errNotFollowed = errors.New("the new server could not be written into the lease")

// Follow writes into the lease that this relay continues on a copy of the recorded server, so that the next failover is proved. It is called
// before that is recorded: a server that fails over back in between is the recorded one again. After an error, which does not say whether the
// lease has it, the caller looks at the server again, and the row that this one replaces still counts: see proof.
func (h *HeldLease) Follow(ctx context.Context, copied server.ID, at outbox.Position) error {
	err := h.Fence.grant.Load().Renew(ctx, func() lease.Resume {
		return lease.Resume{Source: copied, At: at, Pause: h.State.Pause()}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotFollowed, err)
	}
	return nil
}

// follows announces that this run continues on a copy of the recorded server.
func (r *Relay) follows(ctx context.Context, copied server.ID, at outbox.Position) error {
	if r.parts.Follow == nil {
		return nil
	}
	return r.parts.Follow(ctx, copied, at)
}

// behind is Parts.Behind for a gap of cause failover.
func (r *Relay) behind(cause outbox.GapCause) (report func(context.Context)) {
	if cause != outbox.GapFailover || r.parts.Behind == nil {
		return func(context.Context) {}
	}
	return r.parts.Behind()
}

// relation compares the server that answers with the recorded one. descends says that it is another one, without GTIDs and a copy of it: to
// continue there is a gap of cause failover.
func (r *Relay) relation(ctx context.Context, recorded server.ID, at outbox.Position, info server.Info, end outbox.Position) (relation server.Relation, why string, descends bool, err error) {
	relation, why = server.CheckIdentity(recorded, at, info, end)
	if relation != server.Foreign || r.parts.Descends == nil {
		return relation, why, false, nil
	}
	proof, descends, err := r.parts.Descends(ctx, recorded, at, info.ID)
	if descends {
		why = proof
	}
	return relation, why, descends, err
}
