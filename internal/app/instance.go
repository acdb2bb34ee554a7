package app

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// instance is one start of the process: from the checks to a relay at work, or to a standby, and to the release of all it has opened. It has more than
// 25 methods because each step of a start is one, and leaves in the fields what the later ones and the release need.
type instance struct {
	*process
	*active // the relay at work; nil before, and of a standby

	started  time.Time
	registry *prometheus.Registry
	views
	asker    *asker
	fence    relay.Fence
	sink     sink.Sink // nil once a relay has closed it
	state    *checkpoint.Store
	held     *relay.HeldLease
	web      *web
	waiting  *waiting       // nil unless the start had to wait for the database
	life     *relay.Life    // nil without read_back
	outdated atomic.Bool    // the tables of a pattern have changed, or the lease was obtained or lost
	opened   []func() error // close what was opened, in the order of opening
}

// views are what the calls of operators, and the recorder of the past, share: so a first one covers the last seconds, not all since the start.
type views struct {
	moves pastMoves
	trend operator.Trend
	meter *operator.Meter
}

// run works until the context ends, the tables have changed or the lease was obtained or lost.
func (in *instance) run(ctx context.Context) error {
	if err := in.open(ctx); err != nil {
		var standby *standbyError
		if errors.As(err, &standby) {
			return in.standBy(ctx, standby.tables)
		}
		if ctx.Err() != nil {
			return nil // stopped while it waited for the database
		}
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	reaching, stopReaching := context.WithCancel(ctx) // a stop closes the sink
	restart := func(cause error) {
		in.outdated.Store(true)
		stop(cause)
	}
	var watches sync.WaitGroup
	in.watch(&watches, watching)
	watches.Go(func() { in.contact.Run(reaching, in.sink, in.log.Named("sink")) })
	watches.Go(func() {
		if newTables(watching, in.process, in.asker, in.tables) {
			restart(nil)
		}
	})
	watches.Go(func() { // until no message is in flight to the broker any more
		if err := in.held.Keep(watching); err != nil {
			restart(err)
		}
	})
	watches.Go(func() { in.past.Run(watching, in.watched()) })
	watches.Go(func() { in.life.Run(watching, in.relay) })
	err := in.relay.Run(ctx)
	stopReaching()
	stopWatching()
	watches.Wait()
	if err != nil {
		return err
	}
	return in.life.End(in.relay)
}

// open makes everything up to the working admin server. What cannot work is reported before anything is written.
func (in *instance) open(ctx context.Context) error {
	source, err := serverConfig(in.cfg.Source)
	if err != nil {
		return err
	}
	plain, err := server.Open(source, nil, server.Session{MaxConns: 2}) // unguarded: it asks which server answers
	if err != nil {
		return err
	}
	in.asker = &asker{db: plain, source: source}
	in.onClose(closing(plain))
	tables, err := in.preflight(ctx, source)
	if err != nil {
		return err
	}
	if err := in.lease.find(ctx, in.process, source, names(tables)); err != nil {
		return err
	}
	if in.opts.Shadow {
		in.sink = shadow.NewSink()
	} else if in.sink, err = newSink(in.cfg, in.guard(), in.log.Named("sink"), in.registry); err != nil {
		return err
	}
	in.onClose(in.closeSink)
	if in.state == nil {
		if err := in.openState(ctx); err != nil {
			return err
		}
	}
	if err := in.lead(ctx, names(tables)); err != nil {
		return err
	}
	if err := in.assemble(source, tables); err != nil {
		return err
	}
	return in.serve(in.service(), "started", len(tables))
}

// serve makes the admin server answer for service.
func (in *instance) serve(service admin.Service, started string, tables int) (err error) {
	if in.web != nil {
		in.web.Use(service)
	} else if in.web, err = listen(in.cfg, service, in.registry, in.log); err != nil {
		return err
	}
	if started != "" {
		in.log.Info(started, zap.String("version", in.opts.Version), zap.String("source", in.cfg.Source.Address), zap.Int("tables", tables), zap.String("admin", in.cfg.Admin.Listen))
	}
	return nil
}

// openState opens the state directory; a damaged store is moved aside and replaced, which the start then treats as a gap.
func (in *instance) openState(ctx context.Context) error {
	opts := checkpoint.Options{Log: in.log.Named("checkpoint"), Registerer: in.registry}
	state, err := checkpoint.OpenContext(ctx, in.cfg.Checkpoint.Dir, opts)
	var corrupt *checkpoint.CorruptError
	if errors.As(err, &corrupt) {
		aside, qerr := checkpoint.Quarantine(in.cfg.Checkpoint.Dir, nil)
		if qerr != nil {
			return errors.Join(err, qerr)
		}
		in.log.Error("the state was damaged and is moved aside: starting with a new one and a full sweep", zap.String("aside", aside), zap.Error(err))
		state, err = checkpoint.OpenContext(ctx, in.cfg.Checkpoint.Dir, opts)
	}
	if err != nil {
		return err
	}
	in.state = state
	in.onClose(state.Close)
	return in.past.Keep(state.Past, in.log)
}

// lost reports that an earlier state was lost or damaged, so that the start makes a gap.
func (in *instance) lost() bool {
	_, hasCheckpoint := in.state.Checkpoint()
	return !hasCheckpoint && in.state.Origin().Quarantined != ""
}

// guard is the fence of the sink; nil without a lease.
func (in *instance) guard() *relay.Fence {
	if in.lease.db == nil {
		return nil
	}
	return &in.fence
}

// lead takes the lease, or reports by a *standbyError that another process is active, or may be.
func (in *instance) lead(ctx context.Context, tables []string) error {
	parts := relay.LeaseParts{
		Lease: in.lease.join(in.process, in.state.Origin().CreatedAt, in.registry), Fence: &in.fence, State: in.state, Source: relaySource{config: in.asker.source},
		CheckpointAt: func() time.Time { return in.state.Stats().CheckpointAt }, Signs: checkpoint.Signs(in.cfg.Checkpoint.Dir), Lost: in.lost(), Accept: in.opts.AcceptNewSource, Log: in.log,
	}
	if in.lease.db != nil {
		parts.Sent, parts.Traces = in.lease.sentRows, in.lease.sentRows.table.Traces
	}
	in.held = relay.NewHeldLease(parts)
	held, err := in.held.Take(ctx, tables)
	if err == nil && !held {
		return &standbyError{tables}
	}
	return err
}

// hold pauses or resumes the relay, and every relay that takes over from it.
func (in *instance) hold(p *outbox.Pause) error {
	if err := in.relay.Hold(p); err != nil {
		return err
	}
	in.held.SharePause(context.Background())
	return nil
}

// release lets another process continue at once, unless this one is about to start again by itself. No message is in flight to
// the broker any more.
func (in *instance) release() {
	if in.held == nil || in.outdated.Load() {
		return
	}
	if in.active != nil && in.held.Sent != nil {
		ctx, cancel := context.WithTimeout(context.Background(), in.cfg.Lease.Time/3)
		defer cancel()
		in.held.ShareLastSent(ctx, in.relay)
	}
	in.held.Release()
}

// onClose notes how to close what was opened.
func (in *instance) onClose(f func() error) { in.opened = append(in.opened, f) }

// close releases the lease, ends the admin server, and closes what open made, in the reverse order.
func (in *instance) close() error {
	in.release()
	var errs []error
	if in.web != nil {
		errs = append(errs, in.web.close())
	}
	for _, f := range slices.Backward(in.opened) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// closeSink closes a sink that no relay has closed.
func (in *instance) closeSink() error {
	if in.active != nil || in.sink == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s := in.sink
	in.sink = nil
	return s.Close(ctx)
}

// closing closes a pool. An error is of a connection that broke earlier, and no failure of this run.
func closing(db *sql.DB) func() error {
	return func() error {
		_ = db.Close() // see above
		return nil
	}
}
