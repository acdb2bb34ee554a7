package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Fence keeps a relay from publishing while it does not hold the lease. HeldLease.Take opens it; its zero value is closed.
type Fence struct{ grant atomic.Pointer[lease.Grant] }

// May reports whether no other relay can hold the lease.
func (f *Fence) May() bool {
	g := f.grant.Load()
	return g != nil && g.Valid()
}

// Sink returns s behind the fence: it takes nothing while May is false. What it has taken before it sends only after it has called
// sink.Limits.May.
func (f *Fence) Sink(s sink.Sink) sink.Sink { return fenced{s, f} }

// Unfenced returns the sink itself, for what does not send.
func Unfenced(s sink.Sink) sink.Sink {
	if f, is := s.(fenced); is {
		return f.Sink
	}
	return s
}

type fenced struct {
	sink.Sink
	fence *Fence
}

// Send implements sink.Sink.
func (f fenced) Send(batch []*outbox.Message, done func([]sink.Result)) {
	if f.fence.May() {
		f.Sink.Send(batch, done)
		return
	}
	results := make([]sink.Result, len(batch))
	for i, m := range batch {
		results[i] = sink.Result{Message: m, Outcome: outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: sink.ErrMayNot.Error()}}
	}
	go done(results) // the caller may hold a lock that done needs
}

// Probe implements sink.Sink.
func (f fenced) Probe(ctx context.Context) error {
	if !f.fence.May() {
		return sink.ErrMayNot
	}
	return f.Sink.Probe(ctx)
}

// LongestDelay implements sink.Delayer.
func (f fenced) LongestDelay() time.Duration {
	if d, can := f.Sink.(sink.Delayer); can {
		return d.LongestDelay()
	}
	return 0
}
