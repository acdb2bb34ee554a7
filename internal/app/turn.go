package app

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Turn is the time for which a relay holds the lease. The fields are set before Take. The simulation takes turns as the daemon does.
type Turn struct {
	Lease  *lease.Lease
	State  State // of this relay alone
	Source Source
	Lost   bool // an earlier state was lost, so that the start makes a gap
	Log    *zap.Logger

	grant atomic.Pointer[lease.Grant] // nil before Take, and without a lease
}

// May is the fence of the sink: whether nobody else can hold the lease.
func (t *Turn) May() bool {
	g := t.grant.Load()
	return g != nil && g.Valid()
}

// Take takes the lease; false when another process is active, or may be. It goes on from where that one was done with the log, paused
// if that one was.
func (t *Turn) Take(ctx context.Context, tables []string) (held bool, err error) {
	watched := t.Lease.State().Holder != ""
	grant, held := t.Lease.Acquire(ctx, tables)
	if !held {
		return false, nil
	}
	t.grant.Store(grant)
	if err := t.inheritPause(grant, watched); err != nil {
		return true, err
	}
	if grant == nil || grant.From.At.IsZero() || t.Lost {
		return true, nil
	}
	return true, t.inherit(ctx, grant.From)
}

// inheritPause is paused if the relay was that this one takes over from, and not if it was not. A pause that somebody has left in this
// directory while it had watched nobody as active holds too.
func (t *Turn) inheritPause(grant *lease.Grant, watched bool) error {
	own := t.State.Pause()
	switch {
	case grant == nil || !grant.Other || grant.From.Pause == nil && (own == nil || !watched):
		return nil
	case grant.From.Pause == nil:
		t.Log.Info("the pause of this state directory is over: the relay that was active meanwhile was not paused", zap.String("by", own.By))
	case own == nil || *own != *grant.From.Pause:
		t.Log.Warn("the relay that was active before is paused, and so is this one", zap.String("by", grant.From.Pause.By), zap.String("reason", grant.From.Pause.Reason))
	}
	return t.State.SetPause(grant.From.Pause)
}

// inherit goes on from where the last active process was, which is later than where this one was when it was active. A position of
// another history, such as one that came with a copy of the database, is left alone.
func (t *Turn) inherit(ctx context.Context, from lease.Resume) error {
	var info server.Info
	var end outbox.Position
	err := untilAnswered(ctx, t.Log, func() (err error) {
		info, end, err = t.Source.Look(ctx)
		return err
	})
	if err != nil {
		return err
	}
	own, _ := t.State.Checkpoint()
	if relation, why := server.CheckIdentity(from.Source, from.At, info, end); relation == server.Foreign {
		t.Log.Warn("the lease holds a position of another server, which is not used", zap.Stringer("position", from.At), zap.String("why", why))
		return nil
	}
	t.Log.Info("going on from where the last active relay was done with the log", zap.Stringer("position", from.At), zap.Stringer("own", own))
	return t.State.Reset(from.Source, from.At, 0, TakenOver)
}

// TakenOver is the reason of a position that came with the lease, in the words of the checkpoint's history.
const TakenOver = "taken over from another relay"

// Keep renews the lease, with the position of the state, until ctx ends. The error is lease.ErrLost.
func (t *Turn) Keep(ctx context.Context) error { return t.grant.Load().Keep(ctx, t.resume) }

// Tell writes into the lease at once whether the relay is paused. If that does not work the next renewal does it.
func (t *Turn) Tell(ctx context.Context) {
	if err := t.grant.Load().Renew(ctx, t.resume); err != nil {
		t.Log.Warn("the lease does not say yet whether this relay is paused: one that takes over before the next renewal may do the opposite", zap.Error(err))
	}
}

func (t *Turn) resume() (r lease.Resume) {
	r.Source, _ = t.State.Source()
	r.At, _ = t.State.Checkpoint()
	r.Pause = t.State.Pause()
	return r
}

// Release lets another process go on at once. Nothing may be on its way to the broker any more.
func (t *Turn) Release() {
	if t.Lease == nil || t.State == nil { // an attempt to open that has not come to Take
		return
	}
	if err := t.Lease.Release(context.Background(), t.resume()); err != nil {
		t.Log.Warn("the lease could not be released: another relay goes on when it has run out", zap.Error(err))
	}
}
