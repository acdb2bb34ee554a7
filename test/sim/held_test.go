package sim

import (
	"context"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// This file is what internal/app does around a relay that shares its tables with others.

// serveByLease is a process: it stands by, works while it holds the lease, and stands by again, as app.Run does.
func (i *incarnation) serveByLease() error {
	m := i.team
	defer func() {
		if m.lease != nil {
			_ = m.lease.Release(context.Background(), lease.Resume{}) // without the database it runs out
		}
	}()
	for {
		again, err := i.serve()
		if err != nil || !again || i.ctx.Err() != nil {
			return err
		}
		i = i.restarted()
	}
}

// restarted returns the same process after a restart of all its checks. It has the number of a new life: what was known to the old
// one no longer counts.
func (i *incarnation) restarted() *incarnation {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	next := i.w.incarnate(i.disk, i.plan, i.team)
	next.ctx, next.cancel, next.killed, next.ended = i.ctx, i.cancel, i.killed, i.ended
	next.dead, next.steps = i.dead, i.steps
	return next
}

// latest is what became of a process. Callers hold mu.
func (i *incarnation) latest() *incarnation {
	if now := i.disk.present; now.killed == i.killed {
		return now
	}
	return i
}

// serve opens the state, and stands by or works. It reports whether the process starts again.
func (i *incarnation) serve() (again bool, err error) {
	m := i.team
	state, err := i.openState()
	if err != nil {
		return false, err
	}
	defer func() {
		if cerr := state.Close(); err == nil {
			err = cerr
		}
	}()
	if m.lease == nil {
		m.join(i, state)
	}
	_, has := state.Checkpoint()
	held := relay.NewHeldLease(relay.LeaseParts{
		Lease: m.lease, Fence: new(relay.Fence), State: state, Source: source{i}, Log: i.log, Lost: state.Origin().Quarantined != "" && !has,
	})
	taken, err := held.Take(i.ctx, i.w.plan.leased())
	switch {
	case err != nil && i.ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	case !taken:
		return m.lease.Await(i.ctx, i.w.plan.leased()) == nil, nil
	}
	return i.lead(held, state)
}

// lead works until the lease is lost or the process ends.
func (i *incarnation) lead(held *relay.HeldLease, state *state) (lost bool, err error) {
	m, s := i.team, newSink(i)
	s.may = held.Fence.May
	var through sink.Sink = s
	if i.w.plan.exactly {
		if s.exact, err = newExact(s); err != nil {
			return false, err
		}
		through = s.exact
	}
	own := i.relayOn(state, s, observed{held.Fence.Sink(through), i}, held.Lost, held.Begin, nil)
	m.setHeld(held)
	defer m.setHeld(nil)
	ctx, stop := context.WithCancelCause(i.ctx)
	defer stop(nil)
	keeping, enough := context.WithCancel(context.WithoutCancel(ctx))
	kept := make(chan error, 1)
	go func() {
		err := held.Keep(keeping)
		if err != nil {
			stop(err)
		}
		kept <- err
	}()
	err = own.Run(ctx)
	enough()
	if lost = <-kept != nil; !lost {
		held.Release()
	}
	return lost, err
}

// observed is a sink whose fence is seen to refuse.
type observed struct {
	sink.Sink
	i *incarnation
}

// Send implements sink.Sink.
func (o observed) Send(list []*outbox.Message, done func([]sink.Result)) {
	o.Sink.Send(list, func(results []sink.Result) {
		w := o.i.w
		w.mu.Lock()
		for _, r := range results {
			if r.Outcome.Reason == sink.ErrMayNot.Error() {
				w.answered(o.i, r.Message, r.Outcome)
			}
		}
		w.mu.Unlock()
		done(results)
	})
}

// join makes the process's part in the lease. Its holder is the state directory: one that was lost is another one.
func (m *member) join(i *incarnation, state *state) {
	random := newDice(m.w.seed, "lease", uint64(i.life))
	own := lease.New(lease.Config{
		Time: m.w.plan.team.lease, Holder: m.name() + " " + state.Origin().CreatedAt.String(), Host: m.name(),
		Random: func() float64 {
			m.w.mu.Lock()
			defer m.w.mu.Unlock()
			return random.float()
		},
	}, leaseRows{i}, i.log)
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.lease = own
}
