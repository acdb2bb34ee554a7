package app

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/ack"
	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/alert"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/history"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/reconcile"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/internal/systemd"
	"github.com/canal-outbox/canal-outbox/internal/tracing"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline"
	"github.com/canal-outbox/canal-outbox/redelivery"
	"github.com/canal-outbox/canal-outbox/retention"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Options of Run that are no part of the configuration.
type Options struct {
	Version         string
	Shadow          bool // send nothing and write nothing into the tables; tell what would be sent, and when
	AcceptNewSource bool // take over a server that is not the recorded one

	answered func([]sink.Result) // is called with each result of the broker; may be nil
}

// Run is the service: it works until the context ends and then stops in order. Errors: *FaultsError when something must be
// fixed first, *RefusedError when the source is not the recorded one, else what went wrong.
//
// When the tables of a pattern have changed, or the lease was obtained or lost, it stops in order and starts again.
func Run(ctx context.Context, cfg *config.Config, opts Options, log *zap.Logger) (err error) {
	defer context.AfterFunc(ctx, func() {
		if err := systemd.Stopping(); err != nil {
			log.Warn("systemd does not hear of the stop", zap.Error(err))
		}
	})()
	past, t := history.NewRecorder(), &tenure{}
	defer func() { err = errors.Join(err, t.close()) }()
	for {
		d := &daemon{cfg: cfg, opts: opts, log: log, started: time.Now(), registry: prometheus.NewRegistry(), past: past, tenure: t}
		d.meter = operator.NewMeter(d.started)
		err := errors.Join(d.run(ctx), d.close())
		if err == nil { // an error is the last line itself
			log.Info(d.ended(ctx), zap.Duration("uptime", time.Since(d.started)))
		}
		if err != nil || ctx.Err() != nil || !d.outdated.Load() {
			return err
		}
		if d.relay != nil {
			opts.AcceptNewSource = false // it was meant for the first start
		}
	}
}

// ended is the last line of a daemon that ended without an error.
func (d *daemon) ended(ctx context.Context) string {
	switch {
	case ctx.Err() != nil || !d.outdated.Load():
		return "stopped"
	case d.relay == nil:
		return "no longer standby, starting as active"
	}
	return "stopped, starting again with what has changed"
}

// run works until the context ends, the tables have changed or the lease came or went.
func (d *daemon) run(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		var standby *standbyError
		if errors.As(err, &standby) {
			return d.standBy(ctx, standby.tables)
		}
		if ctx.Err() != nil {
			return nil // told to stop while it waited for the database
		}
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	reaching, stopReaching := context.WithCancel(ctx) // a stop closes the sink
	var watches sync.WaitGroup
	watches.Go(func() { d.samples.Run(watching) })
	if d.shadow == nil {
		watches.Go(func() { d.relays.Run(watching) })
	} else { // which no other relay needs to be told of
		watches.Go(func() { _ = d.shadow.Run(watching) }) // it returns nil
	}
	watches.Go(func() { d.contact.run(reaching, d.sink, d.log.Named("sink")) })
	watches.Go(func() { d.watchTables(watching, func() { stop(nil) }) })
	if d.tenure.db != nil {
		watches.Go(func() { d.leaveSent(watching) })
	}
	watches.Go(func() { d.keepLease(watching, stop) }) // until nothing is on its way to the broker any more
	watches.Go(func() { d.past.Run(watching, d.watched()) })
	watches.Go(func() { d.checks.Run(watching) })
	watches.Go(func() { d.alerts.Run(watching) }) // beyond the relay's end: its last rows may fail while it stops
	err := d.relay.Run(ctx)
	stopReaching()
	stopWatching()
	watches.Wait()
	return err
}

// daemon is the process's possessions, in the order in which they are made.
type daemon struct {
	cfg      *config.Config
	opts     Options
	log      *zap.Logger
	started  time.Time
	registry *prometheus.Registry
	past     *history.Recorder // outlives this daemon
	moves    pastMoves
	trend    operator.Trend
	meter    *operator.Meter // of all who look, the recorder among them: so a first look is at the last seconds, not since the start

	state    *checkpoint.Store
	source   server.Config
	plain    *sql.DB  // unguarded: for asking who the server is
	guarded  *sql.DB  // for the tables
	replica  *replica // nil without fallback.read_from
	tables   []*table.Table
	rows     tableRows // of those that have a status
	samples  *operator.Sampler
	alerts   *alert.Alerter
	notes    *notes
	relays   *operator.Relays
	leaving  *retention.Retention
	checks   *reconcile.Schedule
	shadow   *shadow.Shadow // nil but with Options.Shadow
	present  presence       // for relays
	sink     sink.Sink
	contact  contact
	tracer   *tracing.Tracer // nil without tracing.endpoint
	relay    *relay.Relay
	reader   *canal.Reader
	tenure   *tenure
	turn     Turn        // with tenure's lease
	outdated atomic.Bool // the tables of a pattern have changed, or the lease came or went
	waiting  *waiting    // nil unless the start had to wait for the database

	admin       *admin.Server
	stopServing context.CancelFunc
	served      chan error
	pulse       sync.WaitGroup // the watchdog's
}

// open makes everything up to the working admin server. What cannot work is reported before anything is written.
func (d *daemon) open(ctx context.Context) error {
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "canal_outbox_build_info", Help: "1, with the version as a label.",
			ConstLabels: prometheus.Labels{"version": d.opts.Version},
		}, func() float64 { return 1 }))
	source, err := serverConfig(d.cfg.Source)
	if err != nil {
		return err
	}
	d.source = source
	if d.plain, err = server.Open(source, nil, server.Session{MaxConns: 2}); err != nil {
		return err
	}
	tables, err := d.preflight(ctx, source)
	if err != nil {
		return err
	}
	if err := d.findLease(ctx, names(tables)); err != nil {
		return err
	}
	if d.opts.Shadow {
		d.sink = shadow.NewSink()
	} else if d.sink, err = newSink(d.cfg, d.may(), d.log.Named("sink"), d.registry); err != nil {
		return err
	}
	if d.state == nil {
		if err := d.openState(ctx); err != nil {
			return err
		}
	}
	d.joinLease()
	if err := d.lead(ctx, names(tables)); err != nil {
		return err
	}
	if err := d.assemble(source, tables); err != nil {
		return err
	}
	if d.admin != nil {
		d.admin.Use(d.service())
	} else if err := d.listen(d.service()); err != nil {
		return err
	}
	d.log.Info("started", zap.String("version", d.opts.Version), zap.String("source", d.cfg.Source.Address),
		zap.Int("tables", len(tables)), zap.String("admin", d.cfg.Admin.Listen))
	return nil
}

// listen starts the admin server.
func (d *daemon) listen(service admin.Service) (err error) {
	peers := make([]admin.Peer, 0, len(d.cfg.Admin.Peers))
	for _, p := range d.cfg.Admin.Peers {
		peers = append(peers, admin.Peer{URL: p.URL, Token: p.Token.Reveal()})
	}
	d.admin, err = admin.Listen(admin.Config{
		Address: d.cfg.Admin.Listen, Token: d.cfg.Admin.Token.Reveal(), Reader: d.cfg.Admin.ReadToken.Reveal(), Socket: d.cfg.Checkpoint.Socket(), Peers: peers,
	}, service, d.registry, d.log.Named("admin"))
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background()) // beyond the end of the relay, until close
	d.stopServing, d.served = stop, make(chan error, 1)
	go func() { d.served <- d.admin.Run(serving) }()
	d.pulse.Go(func() { systemd.Watch(serving, d.admin.Live, d.log.Named("systemd")) })
	return nil
}

// openState opens the state directory; a damaged store is moved aside and replaced, which the start then treats as a gap.
func (d *daemon) openState(ctx context.Context) (err error) {
	opts := checkpoint.Options{Log: d.log.Named("checkpoint"), Registerer: d.registry}
	d.state, err = checkpoint.OpenContext(ctx, d.cfg.Checkpoint.Dir, opts)
	if err == nil {
		return d.past.Keep(d.state.Past, d.log)
	}
	var corrupt *checkpoint.CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	aside, qerr := checkpoint.Quarantine(d.cfg.Checkpoint.Dir, nil)
	if qerr != nil {
		return errors.Join(err, qerr)
	}
	d.log.Error("the state was damaged and is moved aside: starting with a new one and a full sweep", zap.String("aside", aside), zap.Error(err))
	if d.state, err = checkpoint.OpenContext(ctx, d.cfg.Checkpoint.Dir, opts); err != nil {
		return err
	}
	return d.past.Keep(d.state.Past, d.log)
}

// assemble connects the stations.
func (d *daemon) assemble(source server.Config, tables []*table.Table) (err error) {
	gate := relay.NewGate()
	if d.guarded, err = server.Open(source, gate.Guard, server.Session{Writes: true, MaxConns: connections(len(tables)) + d.cfg.Fallback.Workers - 1}); err != nil {
		return err
	}
	d.tables = tables
	d.rows = rowsOf(d.guarded, tables, d.state.Waits, d.may())
	d.rows.OnRefused(d.logRefused)
	d.samples = operator.NewSampler(d.rows.Counts, d.registry, d.log)
	d.alerts, d.checks, d.notes = d.newAlerts(), d.newChecks(), d.newNotes()
	recorded := func() (server.ID, outbox.Position) {
		id, _ := d.state.Source()
		at, _ := d.state.Checkpoint()
		return id, at
	}
	newReader := func(h canal.Handler) relay.Reader {
		if d.waiting != nil {
			d.registry.Unregister(d.waiting.reader)
		}
		d.reader = canal.New(canal.Config{
			Server: source, Tables: tables, ServerID: serverID(d.cfg), Heartbeat: d.cfg.Source.Heartbeat,
			MaxTransactionBytes: int(d.cfg.Pipeline.MaxTransactionBytes), Recorded: recorded, Schemas: d.state.Schemas,
			Noticed: func(at time.Time, table, done string) { d.past.Mark(at, "table", table+" was "+done) },
		}, h, d.log.Named("binlog"), d.registry)
		return d.reader
	}
	d.present = presence{source: source, tables: names(tables), leased: d.tenure.db != nil, accepted: gate.Current}
	d.relays = operator.NewRelays(d.present.look, d.registry, d.log)
	numbers := settings(d.cfg, tables)
	if err := d.openReplica(table.WithStatus(tables), &numbers.Fallback); err != nil {
		return err
	}
	numbers.Pipeline.May = d.may()
	numbers.Ack.Failed, numbers.Ack.Noted, numbers.Again.Retried = d.alerts.Failed, d.notes.take, d.alerts.Retried
	numbers.Again.Version, numbers.Again.TakenOver = d.opts.Version, d.turn.TookOver
	_, hasCheckpoint := d.state.Checkpoint()
	leaves := expiring(d.cfg.Retention, d.rows.Tables())
	if d.replica != nil {
		leaves.Replica = d.replica
	}
	d.leaving = retention.New(leaves, d.rows, d.log.Named("retention"), d.registry)
	rows, leaving, again := relay.Rows(failedRows{d.rows, checkpoint.NewFailedLog(d.cfg.Checkpoint.Dir)}), d.leaving, &relay.Again{Rows: d.rows, Memory: d.state.Waits}
	state := relay.State(d.state)
	if d.opts.Shadow {
		state = shadowState{d.state}
		silent, _ := d.sink.(shadow.Sink) // see open
		d.shadow = shadow.New(d.rows.States, silent, d.log)
		rows, leaving, again = shadowRows{d.rows, d.shadow}, nil, nil
		d.log.Warn("shadow: nothing is sent, and nothing is written into the tables")
	}
	out, err := d.watchSink()
	if err != nil {
		return err
	}
	d.relay = relay.New(relay.Parts{
		Source: d.asker(), Gate: gate, LogOnly: withoutStatus(tables), Rows: tracedRows{rows, d.tracer}, Sink: out, State: state, Reader: newReader, Retention: leaving, Again: again, Begin: d.turn.Begin,
		Lost: !hasCheckpoint && d.state.Origin().Quarantined != "", AcceptNewSource: d.opts.AcceptNewSource,
	}, numbers, d.log, d.registry)
	return nil
}

// connections bounds the pool for the tables: a few for sweep, recovery, samples, retention and the operator, and one for each statement
// that ack may run, so that a locked table takes none from the others. They are dialled when they are needed. The limit is for
// servers with many tables: so many are never locked at once, and a server takes 151 connections by default.
func connections(tables int) int { return 5 + min(3*tables, 60) }

func names(tables []*table.Table) []string {
	out := make([]string, len(tables))
	for i, t := range tables {
		out[i] = t.Name()
	}
	return out
}

// settings translates the numbers.
func settings(cfg *config.Config, tables []*table.Table) relay.Settings {
	byTable, byTopic, byType := map[string]outbox.Retry{}, map[string]outbox.Retry{}, map[string]outbox.Retry{}
	failedEvery, redeliver := map[string]time.Duration{}, map[string]table.Redeliver{}
	var ordered []string
	for _, t := range tables {
		byTable[t.Name()] = t.Retry()
		if t.Ordered() {
			ordered = append(ordered, t.Name())
		}
		if every := t.FailedEvery(cfg.Retry.FailedEvery); every > 0 {
			failedEvery[t.Name()] = every
		}
		if rule := t.Redeliver(); rule.After > 0 {
			redeliver[t.Name()] = rule
		}
	}
	for topic, a := range cfg.Retry.Topics {
		byTopic[topic] = a.Rule()
	}
	for kind, a := range cfg.Retry.Types {
		byType[kind] = a.Rule()
	}
	return relay.Settings{
		Pipeline: pipeline.Config{
			MaxInFlight: cfg.Pipeline.MaxInFlight, MaxInFlightBytes: int(cfg.Pipeline.MaxInFlightBytes), Random: rand.Float64,
			Tables: byTable, Topics: byTopic, Types: byType, Ordered: ordered,
		},
		Ack: ack.Config{FlushTimeout: relay.DefaultStop},
		Fallback: fallback.Config{
			Tables: names(table.WithStatus(tables)), Interval: cfg.Fallback.Interval, Threshold: cfg.Fallback.Threshold, Patience: cfg.Fallback.Patience,
			ClaimTimeout: cfg.Fallback.ClaimTimeout, Batch: cfg.Fallback.Batch, Workers: cfg.Fallback.Workers, Rate: cfg.Fallback.Rate,
		},
		Again: redelivery.Config{Failed: failedEvery, Sent: redeliver},
	}
}

// close releases in reverse what open made; what the relay's stop has closed already is left alone.
func (d *daemon) close() error {
	var errs []error
	d.release()
	if d.served != nil {
		d.stopServing()
		d.pulse.Wait()
		errs = append(errs, <-d.served)
	}
	if d.relay == nil && d.sink != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		errs = append(errs, d.sink.Close(ctx))
	}
	d.tracer.Close(2 * time.Second)
	_ = d.present.close() // the error of a connection that broke earlier is no failure of this run
	if d.replica != nil {
		d.replica.close()
	}
	for _, db := range []*sql.DB{d.guarded, d.plain} {
		if db != nil {
			_ = db.Close() // the error of a connection that broke earlier is no failure of this run
		}
	}
	if d.state != nil {
		errs = append(errs, d.state.Close())
	}
	return errors.Join(errs...)
}
