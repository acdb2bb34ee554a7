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

// daemon is one start of the process: from the checks to a relay at work, or to a standby, and to the release of all it has opened. It has more than
// 25 methods because each step of a start is one, and leaves in the fields what the later ones and the release need.
type daemon struct {
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
func (d *daemon) run(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		var standby *standbyError
		if errors.As(err, &standby) {
			return d.standBy(ctx, standby.tables)
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
		d.outdated.Store(true)
		stop(cause)
	}
	var watches sync.WaitGroup
	d.watch(&watches, watching)
	watches.Go(func() { d.contact.Run(reaching, d.sink, d.log.Named("sink")) })
	watches.Go(func() {
		if newTables(watching, d.process, d.asker, d.tables) {
			restart(nil)
		}
	})
	watches.Go(func() { // until no message is in flight to the broker any more
		if err := d.held.Keep(watching); err != nil {
			restart(err)
		}
	})
	watches.Go(func() { d.past.Run(watching, d.watched()) })
	watches.Go(func() { d.life.Run(watching, d.relay) })
	err := d.relay.Run(ctx)
	stopReaching()
	stopWatching()
	watches.Wait()
	if err != nil {
		return err
	}
	return d.life.End(d.relay)
}

// open makes everything up to the working admin server. What cannot work is reported before anything is written.
func (d *daemon) open(ctx context.Context) error {
	source, err := serverConfig(d.cfg.Source)
	if err != nil {
		return err
	}
	plain, err := server.Open(source, nil, server.Session{MaxConns: 2}) // unguarded: it asks which server answers
	if err != nil {
		return err
	}
	d.asker = &asker{db: plain, source: source}
	d.onClose(closing(plain))
	tables, err := d.preflight(ctx, source)
	if err != nil {
		return err
	}
	if err := d.lease.find(ctx, d.process, source, names(tables)); err != nil {
		return err
	}
	if d.opts.Shadow {
		d.sink = shadow.NewSink()
	} else if d.sink, err = newSink(d.cfg, d.guard(), d.log.Named("sink"), d.registry); err != nil {
		return err
	}
	d.onClose(d.closeSink)
	if d.state == nil {
		if err := d.openState(ctx); err != nil {
			return err
		}
	}
	if err := d.lead(ctx, names(tables)); err != nil {
		return err
	}
	if err := d.assemble(source, tables); err != nil {
		return err
	}
	return d.serve(d.service(), "started", len(tables))
}

// serve makes the admin server answer for service.
func (d *daemon) serve(service admin.Service, started string, tables int) (err error) {
	if d.web != nil {
		d.web.Use(service)
	} else if d.web, err = listen(d.cfg, service, d.registry, d.log); err != nil {
		return err
	}
	if started != "" {
		d.log.Info(started, zap.String("version", d.opts.Version), zap.String("source", d.cfg.Source.Address), zap.Int("tables", tables), zap.String("admin", d.cfg.Admin.Listen))
	}
	return nil
}

// openState opens the state directory; a damaged store is moved aside and replaced, which the start then treats as a gap.
func (d *daemon) openState(ctx context.Context) error {
	opts := checkpoint.Options{Log: d.log.Named("checkpoint"), Registerer: d.registry}
	state, err := checkpoint.OpenContext(ctx, d.cfg.Checkpoint.Dir, opts)
	var corrupt *checkpoint.CorruptError
	if errors.As(err, &corrupt) {
		aside, qerr := checkpoint.Quarantine(d.cfg.Checkpoint.Dir, nil)
		if qerr != nil {
			return errors.Join(err, qerr)
		}
		d.log.Error("the state was damaged and is moved aside: starting with a new one and a full sweep", zap.String("aside", aside), zap.Error(err))
		state, err = checkpoint.OpenContext(ctx, d.cfg.Checkpoint.Dir, opts)
	}
	if err != nil {
		return err
	}
	d.state = state
	d.onClose(state.Close)
	return d.past.Keep(state.Past, d.log)
}

// lost reports that an earlier state was lost or damaged, so that the start makes a gap.
func (d *daemon) lost() bool {
	_, hasCheckpoint := d.state.Checkpoint()
	return !hasCheckpoint && d.state.Origin().Quarantined != ""
}

// guard is the fence of the sink; nil without a lease.
func (d *daemon) guard() *relay.Fence {
	if d.lease.db == nil {
		return nil
	}
	return &d.fence
}

// lead takes the lease, or reports by a *standbyError that another process is active, or may be.
func (d *daemon) lead(ctx context.Context, tables []string) error {
	parts := relay.LeaseParts{
		Lease: d.lease.join(d.process, d.state.Origin().CreatedAt, d.registry), Fence: &d.fence, State: d.state, Source: relaySource{config: d.asker.source},
		CheckpointAt: func() time.Time { return d.state.Stats().CheckpointAt }, Signs: checkpoint.Signs(d.cfg.Checkpoint.Dir), Lost: d.lost(), Accept: d.opts.AcceptNewSource, Log: d.log,
	}
	if d.lease.db != nil {
		parts.Sent, parts.Traces = d.lease.sentRows, d.lease.sentRows.table.Traces
	}
	d.held = relay.NewHeldLease(parts)
	held, err := d.held.Take(ctx, tables)
	if err == nil && !held {
		return &standbyError{tables}
	}
	return err
}

// hold pauses or resumes the relay, and every relay that takes over from it.
func (d *daemon) hold(p *outbox.Pause) error {
	if err := d.relay.Hold(p); err != nil {
		return err
	}
	d.held.SharePause(context.Background())
	return nil
}

// release lets another process continue at once, unless this one is about to start again by itself. No message is in flight to
// the broker any more.
func (d *daemon) release() {
	if d.held == nil || d.outdated.Load() {
		return
	}
	if d.active != nil && d.held.Sent != nil {
		ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Lease.Time/3)
		defer cancel()
		d.held.ShareLastSent(ctx, d.relay)
	}
	d.held.Release()
}

// onClose notes how to close what was opened.
func (d *daemon) onClose(f func() error) { d.opened = append(d.opened, f) }

// close releases the lease, ends the admin server, and closes what open made, in the reverse order.
func (d *daemon) close() error {
	d.release()
	var errs []error
	if d.web != nil {
		errs = append(errs, d.web.close())
	}
	for _, f := range slices.Backward(d.opened) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// closeSink closes a sink that no relay has closed.
func (d *daemon) closeSink() error {
	if d.active != nil || d.sink == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s := d.sink
	d.sink = nil
	return s.Close(ctx)
}

// closing closes a pool. An error is of a connection that broke earlier, and no failure of this run.
func closing(db *sql.DB) func() error {
	return func() error {
		_ = db.Close() // see above
		return nil
	}
}
