package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// LeaseParts are what a HeldLease works with.
type LeaseParts struct {
	Lease  *lease.Lease
	Fence  *Fence // of the sink
	State  State  // of this relay alone
	Source interface {
		Look(ctx context.Context) (server.Info, outbox.Position, error)
	}
	Sent  SentRows // nil: a take-over does not know the rows that other relays have sent
	Signs Signs    // of the state directory: it gets those of the relay before; nil: it does not
	// Traces reads those of the lease table, and CheckpointAt returns when the checkpoint was last written, by our clock. Without them no server
	// is accepted as a copy of another one.
	Traces       func(context.Context) ([]lease.Trace, error)
	CheckpointAt func() time.Time
	Lost         bool // an earlier state was lost, so that the start makes a gap
	Accept       bool // an operator accepts the server as it is
	Log          *zap.Logger
}

// HeldLease is the lease as one relay holds it: from Take, which inherits what the relay before left, to Release.
type HeldLease struct {
	LeaseParts
	taken atomic.Bool // see TookOver
	// begun says that the relay has accepted the server. Before, no renewal writes the position: it would make any server look like a copy.
	begun  atomic.Bool
	traces []lease.Trace // of the server before Take
	proof  proof         // read and written by the goroutine that takes the lease and starts the relay, and then by the reader's

	sharing sync.Mutex                  // held while the list of sent rows is written
	life    atomic.Pointer[outbox.Life] // see Sign
}

// NewHeldLease returns a lease that is not held yet. It does no I/O.
func NewHeldLease(parts LeaseParts) *HeldLease { return &HeldLease{LeaseParts: parts} }

// Take takes the lease; false when another process is active, or may be. This relay continues from the position up to which the
// other one had settled the log, and is paused if the other one was.
func (h *HeldLease) Take(ctx context.Context, tables []string) (held bool, err error) {
	watched := h.Lease.State().Holder != ""
	h.taken.Store(false)
	h.begun.Store(false)
	if h.Traces != nil {
		if h.traces, err = h.Traces(ctx); err != nil {
			h.Log.Warn("the lease cannot be read: standing by", zap.Error(err))
			return false, nil
		}
	}
	grant, held := h.Lease.Acquire(ctx, tables, func(ctx context.Context, left lease.Resume) error {
		use, away := h.usable(ctx, left)
		var refused *RefusedError
		switch {
		case errors.As(away, &refused):
			err = away
			return away
		case away != nil:
			return away // the next attempt queries the database again
		}
		sent, away := h.readSent(ctx, tables)
		if away != nil {
			return away
		}
		if err = h.inheritPause(left.Pause, watched); err == nil && use {
			err = h.State.Reset(left.Source, left.At, 0, ReasonTakenOver)
		}
		h.taken.Store(true)
		if err == nil {
			err = h.inheritSent(sent)
		}
		if err == nil {
			err = h.inheritLife(sent.Life)
		}
		return err
	})
	if held {
		h.Fence.grant.Store(grant)
	}
	return held, err
}

// TookOver reports whether the lease was taken from another relay.
func (h *HeldLease) TookOver() bool { return h.taken.Load() }

// inheritPause pauses this relay if the relay that it takes over from was paused, and resumes it if that one was not paused. A
// pause that was set in this directory while this relay had seen no active one stays in force, too.
func (h *HeldLease) inheritPause(theirs *outbox.Pause, watched bool) error {
	own := h.State.Pause()
	switch {
	case theirs == nil && (own == nil || !watched):
		return nil
	case theirs == nil:
		h.Log.Info("the pause of this state directory is over: the relay that was active meanwhile was not paused", zap.String("by", own.By))
	case own == nil || *own != *theirs:
		h.Log.Warn("paused, as the relay was that was active before", zap.String("by", theirs.By), zap.String("reason", theirs.Reason))
	}
	return h.State.SetPause(theirs)
}

// usable reports whether to continue from the position of the last active process, which is later than that of this one when it
// was active. A position of another history, such as one that came with a copy of the database, is ignored. It is refused where
// this relay has worked on the server of that position, or has seen another one work on it: then the server lacks transactions,
// and the relay that was active refuses it too.
func (h *HeldLease) usable(ctx context.Context, left lease.Resume) (bool, error) {
	if left.At.IsZero() || h.Lost {
		return false, nil
	}
	info, end, err := h.Source.Look(ctx)
	if err != nil {
		return false, err
	}
	own, _ := h.State.Checkpoint()
	if relation, why := server.CheckIdentity(left.Source, left.At, info, end); relation == server.Foreign {
		if copied, err := h.copied(ctx, left, info.ID); err != nil || copied {
			return copied, err // the start continues from there with a gap
		}
		recorded, known := h.State.Source()
		if (known && recorded.Same(left.Source) || !h.Lease.Followed(left.Source).At.IsZero()) && !h.Accept {
			return false, &RefusedError{Why: "the relay that was active before has read more than this server has: " + why}
		}
		h.Log.Warn("this server lacks what the last active relay had read: its position is not used", zap.Stringer("position", left.At), zap.String("why", why))
		return false, nil
	}
	h.Log.Info("resuming from the last position of the relay that was active before", zap.Stringer("position", left.At), zap.Stringer("own", own))
	return true, nil
}

// Keep renews the lease, with the position of the state, until ctx ends. The error is lease.ErrLost.
func (h *HeldLease) Keep(ctx context.Context) error { return h.Fence.grant.Load().Keep(ctx, h.resume) }

// Begin writes the position of the state into the lease, and retries until that has worked. A relay that takes over continues
// there. Without a position it would begin at the end of the log, and no sweep finds the rows before that end where a table has
// no status. So nothing is read until then. Keep runs meanwhile, and ends ctx when the lease is lost.
func (h *HeldLease) Begin(ctx context.Context) error {
	h.begun.Store(true)
	for n := 0; ; n++ {
		err := h.Fence.grant.Load().Renew(ctx, h.resume)
		switch {
		case err == nil:
			return nil
		case n == 0 && ctx.Err() == nil:
			h.Log.Warn("waiting until the lease has the position of this start", zap.Error(err))
		}
		if !outbox.Wait(ctx, databasePauses.Delay(n, exact), nil) {
			return ctx.Err()
		}
	}
}

// databasePauses are the waits between two attempts to reach the database. They are exact: one process alone waits, and the
// simulation repeats its histories.
var databasePauses = outbox.Backoff{Base: 200 * time.Millisecond, Max: 5 * time.Second}

const exact = 0.5 // the random number for which a wait is the nominal step

// SharePause writes into the lease at once whether the relay is paused. If that fails the next renewal does it.
func (h *HeldLease) SharePause(ctx context.Context) {
	if err := h.Fence.grant.Load().Renew(ctx, h.resume); err != nil {
		h.Log.Warn("the pause or its end is not in the lease yet: a relay that takes over before the next renewal does not have it", zap.Error(err))
	}
}

func (h *HeldLease) resume() (r lease.Resume) {
	if h.begun.Load() {
		r.Source, _ = h.State.Source()
		r.At, _ = h.State.Checkpoint()
	}
	r.Pause = h.State.Pause()
	return r
}

// Release lets another process continue at once. No message may be in flight to the broker any more.
func (h *HeldLease) Release() {
	if err := h.Lease.Release(context.Background(), h.resume()); err != nil {
		h.Log.Warn("the lease could not be released: another relay takes over when it has expired", zap.Error(err))
	}
}
