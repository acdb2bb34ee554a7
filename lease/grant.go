package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/lease/protocol"
)

// Grant is one acquisition of the lease. A nil Grant is that of a relay without a lease, and always valid.
type Grant struct {
	Term uint64

	lease *Lease
	held  protocol.Held             // owned by the goroutine that has the token of order
	order chan struct{}             // holds a token while one renews: a later renewal never writes older data, and none comes after the release
	over  bool                      // released
	until atomic.Pointer[time.Time] // nil: never again
}

// Valid reports whether no other process can hold the lease: whether this process may publish.
func (g *Grant) Valid() bool {
	return g == nil || g.left() > 0
}

// left returns how long the grant is valid without another renewal.
func (g *Grant) left() time.Duration {
	until := g.until.Load()
	if until == nil {
		return 0
	}
	now := time.Now()
	// The wall clock too: the monotonic one stops while the machine sleeps.
	return max(0, min(until.Sub(now), until.Round(0).Sub(now.Round(0))))
}

// extend counts from a time before the statement that renewed the lease was sent.
func (g *Grant) extend(asked time.Time) {
	until := g.held.Until(asked)
	g.until.Store(&until)
}

func (g *Grant) end() { g.until.Store(nil) }

// Keep renews the lease until ctx ends or it is lost; then it returns ErrLost. While the database does not answer the grant ends
// by its own clock, and Keep continues to try: if no other relay has taken the lease over meanwhile, the grant is valid again. at
// returns the position to write.
func (g *Grant) Keep(ctx context.Context, at func() Resume) error {
	if g == nil {
		<-ctx.Done()
		return nil
	}
	l := g.lease
	for wait := l.jittered(l.pause()); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		from, held, err := g.renew(ctx, at)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			wait = l.jittered(l.pause())
			l.missed(g, err)
		case !held:
			l.lost(g)
			return ErrLost
		default:
			l.renewed(g)
			if wait = l.jittered(l.cfg.Time / 3); from.At.IsZero() { // a relay that takes over now would have no position to begin at
				wait = l.jittered(l.pause())
			}
		}
	}
}

// Renew renews at once, so that a relay that takes over later has the data of at. After an error Keep writes it with its next
// renewal.
func (g *Grant) Renew(ctx context.Context, at func() Resume) error {
	if g == nil {
		return nil
	}
	_, held, err := g.renew(ctx, at)
	if err == nil && !held {
		err = ErrLost
	}
	return err
}

func (g *Grant) renew(ctx context.Context, at func() Resume) (from Resume, held bool, err error) {
	select {
	case g.order <- struct{}{}:
	case <-ctx.Done():
		return from, false, ctx.Err()
	}
	defer func() { <-g.order }()
	ctx, cancel := context.WithTimeout(ctx, g.lease.limit())
	defer cancel()
	if g.over {
		return from, false, nil
	}
	from, asked := at(), time.Now()
	held, err = g.lease.rows.Renew(ctx, g.held.Acquisition, from, g.lease.cfg.Time)
	if err == nil && !held {
		asked, held, err = g.again(ctx, from)
	}
	switch {
	case err != nil:
	case held:
		g.extend(asked)
	default:
		g.end()
	}
	return from, held, err
}

// again reads why a renewal matched no row, and repeats it when the database has failed over.
func (g *Grant) again(ctx context.Context, from Resume) (asked time.Time, held bool, err error) {
	v, err := g.lease.rows.Read(ctx)
	if err != nil || !g.held.Unmatched(v, g.Valid()) {
		return asked, false, err
	}
	asked = time.Now()
	if held, err = g.lease.rows.Renew(ctx, g.held.Acquisition, from, g.lease.cfg.Time); err == nil && !held {
		err = errMoving
	}
	return asked, held, err
}

// errMoving reports a renewal that matched no row twice although a read in between found it.
var errMoving = errors.New("connections to the lease table lead to different servers; the renewal is retried")

// Release ends the grant, if there is one, and then lets another process take the lease over at once, from the given position; a
// zero one leaves what the last renewal wrote. No message may be in flight any more.
func (l *Lease) Release(ctx context.Context, at Resume) error {
	l.mu.Lock()
	g := l.grant
	if g != nil {
		l.grant, l.state = nil, State{Mode: Standby, Since: time.Now()}
	}
	l.mu.Unlock()
	if g == nil {
		return nil
	}
	g.order <- struct{}{}
	g.over = true
	own := g.held.Acquisition
	<-g.order
	g.end()
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	return l.rows.Release(ctx, own, at)
}

// missed records a failed renewal; it logs once the grant is no longer valid.
func (l *Lease) missed(g *Grant, err error) {
	l.metrics.missed.Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Error = err.Error()
	if !g.Valid() && l.state.Mode == Active {
		l.state.Mode, l.state.Since = Lapsed, time.Now()
		l.log.Error("the lease could not be renewed in time: nothing is sent until it is", zap.Uint64("term", g.Term), zap.Error(err))
	}
}

func (l *Lease) renewed(g *Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Error = ""
	if l.state.Mode == Lapsed {
		l.state.Mode, l.state.Since = Active, time.Now()
		l.log.Info("the lease is renewed, and no other relay had taken it: sending again", zap.Uint64("term", g.Term))
	}
}

func (l *Lease) lost(g *Grant) {
	l.metrics.lost.Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grant, l.state = nil, State{Mode: Standby, Since: time.Now()}
	l.log.Warn("another process has taken the lease over: this one stops publishing and stands by", zap.Uint64("term", g.Term))
}
