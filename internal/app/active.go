package app

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/ack"
	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/internal/alert"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/reconcile"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline"
	"github.com/canal-outbox/canal-outbox/redelivery"
	"github.com/canal-outbox/canal-outbox/retention"
)

// active is a relay and what looks at it.
type active struct {
	relay   *relay.Relay
	source  relaySource
	reader  *canal.Reader
	tables  []*table.Table
	rows    tableRows // of the tables that have a status
	leaving *retention.Retention
	shadow  *shadow.Shadow // nil but with Options.Shadow
	contact relay.Contact
	samples *operator.Sampler
	relays  *operator.Relays
	alerts  *alert.Alerter
	checks  *reconcile.Schedule
	notes   *notes
}

// watch starts what runs until ctx ends, beyond the relay's end: its last rows may fail while it stops.
func (in *instance) watch(watches *sync.WaitGroup, ctx context.Context) {
	watches.Go(func() { in.samples.Run(ctx) })
	if in.shadow == nil {
		watches.Go(func() { in.relays.Run(ctx) })
	} else { // other relays need no warning of it
		watches.Go(func() { _ = in.shadow.Run(ctx) }) // it returns nil
	}
	if in.held.Sent != nil {
		watches.Go(func() { in.held.ShareSent(ctx, in.relay) })
	}
	watches.Go(func() { in.checks.Run(ctx) })
	watches.Go(func() { in.alerts.Run(ctx) })
}

// assemble makes the relay and what looks at it.
func (in *instance) assemble(from server.Config, tables []*table.Table) error {
	gate, a := relay.NewGate(), &active{tables: tables}
	guarded, err := server.Open(from, gate.Guard, server.Session{Writes: true, Still: gate.Still, MaxConns: connections(len(tables)) + in.cfg.Fallback.Workers - 1})
	if err != nil {
		return err
	}
	in.onClose(closing(guarded))
	a.source = relaySource{config: from, tables: &asker{db: guarded}}
	var may func() bool
	if fence := in.guard(); fence != nil {
		may = fence.May
	}
	a.rows = rowsOf(guarded, tables, in.state.Waits, may)
	a.rows.OnRefused(logRefused(in.log))
	a.samples = operator.NewSampler(a.counts, in.registry, in.log)
	a.alerts, a.checks, a.notes = in.newAlerts(a), in.newChecks(), in.newNotes()
	present := &presence{source: from, tables: names(tables), leased: in.lease.db != nil, accepted: gate.Current}
	in.onClose(present.close)
	a.relays = operator.NewRelays(present.look, in.registry, in.log)
	numbers := settings(in.cfg, tables)
	numbers.Pipeline.May = may
	numbers.Ack.Failed, numbers.Ack.Noted, numbers.Again.Retried = a.alerts.Failed, a.notes.take, a.alerts.Retried
	numbers.Again.Version, numbers.Again.TakenOver = in.opts.Version, in.held.TookOver
	leaves := expiring(in.cfg.Retention, a.rows.Tables())
	replica, err := in.openReplica(table.WithStatus(tables))
	if err != nil {
		return err
	}
	if replica != nil {
		numbers.Fallback.Replica, leaves.Replica = replica, replica
	}
	a.leaving = retention.New(leaves, a.rows, in.log.Named("retention"), in.registry)
	if in.life, err = in.newLife(tables, a.source); err != nil {
		return err
	}
	switch {
	case in.prover() != nil: // its entries have room for few rows that are not settled
	case present.leased:
		numbers.Ack.Soon = onlyInTables(tables, in.life != nil)
	default:
		numbers.Ack.Leaves = func(table string) bool { return !slices.Contains(numbers.Pipeline.Ordered, table) }
	}
	numbers.Ack.PauseEvery = in.cfg.Source.Heartbeat
	parts, err := in.parts(a, gate)
	if err != nil {
		return err
	}
	if in.waiting != nil {
		in.registry.Unregister(in.waiting.reader)
	}
	a.relay = relay.New(parts, numbers, in.log, in.registry)
	in.active = a
	return nil
}

// onlyInTables are the tables whose rows alone show a relay that takes over what was sent.
func onlyInTables(tables []*table.Table, readBack bool) map[string]bool {
	only := map[string]bool{}
	for _, t := range tables {
		if !readBack || !t.NamesMessages() || !t.ShowsUntouched() {
			only[t.Name()] = true
		}
	}
	return only
}

// counts counts the rows of the tables. Those that are sent and show it soon count as sent.
func (a *active) counts(ctx context.Context) ([]query.Counts, error) {
	before := map[string]int{}
	settling := func(table string) int {
		if !a.relay.Ready() {
			return 0
		}
		return a.relay.Acks.Settling(table)
	}
	for _, t := range a.tables {
		before[t.Name()] = settling(t.Name())
	}
	list, err := a.rows.Counts(ctx)
	for i := range list {
		list[i].Settle(min(before[list[i].Table], settling(list[i].Table)))
	}
	return list, err
}

// parts are those of the relay; a shadow changes no table and remembers no row as sent.
func (in *instance) parts(a *active, gate *relay.Gate) (relay.Parts, error) {
	p := relay.Parts{
		Source: a.source, Gate: gate, LogOnly: withoutStatus(a.tables), State: in.state, Retention: a.leaving, Begin: in.held.Begin, Follow: in.held.Follow, Behind: func() func(context.Context) { return in.behind(a.rows) }, Descends: in.held.Descends, Lost: in.lost(),
		AcceptNewSource: in.opts.AcceptNewSource, Again: &relay.Again{Rows: a.rows, Memory: in.state.Waits},
		Rows:   failedRows{a.rows, checkpoint.NewFailedLog(in.cfg.Checkpoint.Dir)},
		Reader: func(h canal.Handler) relay.Reader { a.reader = in.newReader(a.tables, h); return a.reader },
	}
	if in.opts.Shadow {
		silent, _ := in.sink.(shadow.Sink) // see open
		a.shadow = shadow.New(a.rows.States, silent, in.log)
		p.Rows, p.State, p.Retention, p.Again = shadowRows{p.Rows, a.shadow}, shadowState{in.state}, nil, nil
		in.log.Warn("shadow: nothing is sent, and nothing is written into the tables")
	}
	p.Earlier, p.Prover = in.life.Earlier(), in.prover()
	out, tracer, err := in.watchSink()
	p.Sink, p.Rows = out, tracedRows{p.Rows, tracer}
	return p, err
}

func (in *instance) newReader(tables []*table.Table, h canal.Handler) *canal.Reader {
	return canal.New(canal.Config{
		Server: in.asker.source, Tables: tables, ServerID: serverID(in.cfg), Heartbeat: in.cfg.Source.Heartbeat,
		MaxTransactionBytes: int(in.cfg.Pipeline.MaxTransactionBytes), Schemas: in.state.Schemas,
		Recorded: func() (server.ID, outbox.Position) {
			id, _ := in.state.Source()
			at, _ := in.state.Checkpoint()
			return id, at
		},
		Descends: in.held.Descends,
		Noticed:  func(at time.Time, table, done string) { in.past.Mark(at, "table", table+" was "+done) },
	}, h, in.log.Named("binlog"), in.registry)
}

// connections bounds the pool for the tables: a few for sweep, recovery, samples, retention and the operator, and one for each statement
// that ack may run, so that a locked table takes none from the others. They are dialled when they are needed. The limit is for
// servers with many tables: that number is never locked at once, and a server takes 151 connections by default.
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
			Tables: byTable, Topics: byTopic, Types: byType, Ordered: ordered, Several: len(tables) > 1,
		},
		Ack: ack.Config{FlushTimeout: relay.DefaultStop, Several: len(tables) > 1},
		Fallback: fallback.Config{
			Tables: names(table.WithStatus(tables)), Interval: cfg.Fallback.Interval, Threshold: cfg.Fallback.Threshold, Patience: cfg.Fallback.Patience,
			ClaimTimeout: cfg.Fallback.ClaimTimeout, Batch: cfg.Fallback.Batch, Workers: cfg.Fallback.Workers, Rate: cfg.Fallback.Rate,
		},
		Again: redelivery.Config{Failed: failedEvery, Sent: redeliver},
	}
}
