package app

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Turn is the time for which a relay holds the lease. The fields are set before Take. The simulation takes turns as the daemon does.
type Turn struct {
	Lease  *lease.Lease
	State  relay.State // of this relay alone
	Source relay.Source
	Lost   bool // an earlier state was lost, so that the start makes a gap
	Accept bool // an operator takes the server as it is
	Log    *zap.Logger
	// Left returns the rows that the relays before have sent and that their table does not show as SENT; nil: it is not known.
	Left func(ctx context.Context, tables []string) (lease.SentRows, error)

	grant atomic.Pointer[lease.Grant] // nil before Take, and without a lease
	taken atomic.Bool                 // TakenOver
}

// May is the fence of the sink: it reports whether no other relay can hold the lease.
func (t *Turn) May() bool {
	g := t.grant.Load()
	return g != nil && g.Valid()
}

// Take takes the lease; false when another process is active, or may be. This relay continues from the position up to which the
// other one had settled the log, and is paused if the other one was.
func (t *Turn) Take(ctx context.Context, tables []string) (held bool, err error) {
	watched := t.Lease.State().Holder != ""
	t.taken.Store(false)
	grant, held := t.Lease.Acquire(ctx, tables, func(ctx context.Context, left lease.Resume) error {
		use, away := t.usable(ctx, left)
		var refused *relay.RefusedError
		switch {
		case errors.As(away, &refused):
			err = away
			return away
		case away != nil:
			return away // another attempt asks the database again
		}
		sent, away := t.readLeft(ctx, tables)
		if away != nil {
			return away
		}
		if err = t.inheritPause(left.Pause, watched); err == nil && use {
			err = t.State.Reset(left.Source, left.At, 0, TakenOver)
		}
		t.taken.Store(true)
		if err == nil {
			err = t.inheritSent(sent)
		}
		return err
	})
	if held {
		t.grant.Store(grant)
	}
	return held, err
}

// TookOver reports whether the lease was taken from another relay.
func (t *Turn) TookOver() bool { return t.taken.Load() }

// inheritPause pauses this relay if the relay that it takes over from was paused, and resumes it if that one was not paused. A
// pause that was set in this directory while this relay had seen no active one stays in force, too.
func (t *Turn) inheritPause(theirs *outbox.Pause, watched bool) error {
	own := t.State.Pause()
	switch {
	case theirs == nil && (own == nil || !watched):
		return nil
	case theirs == nil:
		t.Log.Info("the pause of this state directory is over: the relay that was active meanwhile was not paused", zap.String("by", own.By))
	case own == nil || *own != *theirs:
		t.Log.Warn("paused, as the relay was that was active before", zap.String("by", theirs.By), zap.String("reason", theirs.Reason))
	}
	return t.State.SetPause(theirs)
}

// usable reports whether to continue from the position of the last active process, which is later than that of this one when it
// was active. A position of another history, such as one that came with a copy of the database, is ignored. It is refused where
// this relay has worked on the server of that position, or has seen another one work on it: then the server lacks transactions,
// and the relay that was active refuses it too.
func (t *Turn) usable(ctx context.Context, left lease.Resume) (bool, error) {
	if left.At.IsZero() || t.Lost {
		return false, nil
	}
	info, end, err := t.Source.Look(ctx)
	if err != nil {
		return false, err
	}
	own, _ := t.State.Checkpoint()
	if relation, why := server.CheckIdentity(left.Source, left.At, info, end); relation == server.Foreign {
		recorded, known := t.State.Source()
		if (known && recorded.Same(left.Source) || t.Lease.Followed(left.Source)) && !t.Accept {
			return false, &relay.RefusedError{Why: "the relay that was active before has read more than this server has: " + why}
		}
		t.Log.Warn("this server lacks what the last active relay had read: its position is not used", zap.Stringer("position", left.At), zap.String("why", why))
		return false, nil
	}
	t.Log.Info("resuming from the last position of the relay that was active before", zap.Stringer("position", left.At), zap.Stringer("own", own))
	return true, nil
}

// TakenOver is the reason of a position that came with the lease, in the words of the checkpoint's history.
const TakenOver = "taken over from another relay"

// Keep renews the lease, with the position of the state, until ctx ends. The error is lease.ErrLost.
func (t *Turn) Keep(ctx context.Context) error { return t.grant.Load().Keep(ctx, t.resume) }

// Begin writes the position of the state into the lease, and retries until that has worked. A relay that takes over continues
// there. Without a position it would begin at the end of the log, and no sweep finds the rows before that end where a table has
// no status. So nothing is read until then. Keep runs meanwhile, and ends ctx when the lease is lost.
func (t *Turn) Begin(ctx context.Context) error {
	backoff := outbox.Backoff{Base: 200 * time.Millisecond, Max: 5 * time.Second}
	for n := 0; ; n++ {
		err := t.grant.Load().Renew(ctx, t.resume)
		switch {
		case err == nil:
			return nil
		case n == 0 && ctx.Err() == nil:
			t.Log.Warn("waiting until the lease has the position of this start", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff.Delay(n, 0.5)): // without jitter: this process alone asks, and the simulation repeats its histories
		}
	}
}

// Tell writes into the lease at once whether the relay is paused. If that does not work the next renewal does it.
func (t *Turn) Tell(ctx context.Context) {
	if err := t.grant.Load().Renew(ctx, t.resume); err != nil {
		t.Log.Warn("the pause or its end is not in the lease yet: a relay that takes over before the next renewal does not know it", zap.Error(err))
	}
}

func (t *Turn) resume() (r lease.Resume) {
	r.Source, _ = t.State.Source()
	r.At, _ = t.State.Checkpoint()
	r.Pause = t.State.Pause()
	return r
}

// Release lets another process continue at once. No message may be in flight to the broker any more.
func (t *Turn) Release() {
	if t.Lease == nil || t.State == nil { // an attempt to open that has not come to Take
		return
	}
	if err := t.Lease.Release(context.Background(), t.resume()); err != nil {
		t.Log.Warn("the lease could not be released: another relay takes over when it has expired", zap.Error(err))
	}
}
