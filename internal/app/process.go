package app

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/history"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/systemd"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Options of Run that are no part of the configuration.
type Options struct {
	Version         string
	Shadow          bool // send nothing and write nothing into the tables; report what would be sent, and when
	AcceptNewSource bool // accept a server that is not the recorded one

	answered func([]sink.Result) // is called with each result of the broker; may be nil
}

// process is what outlives the instances that Run makes one after the other.
type process struct {
	cfg   *config.Config
	opts  Options
	log   *zap.Logger
	past  *history.Recorder
	lease processLease
	// worked says that the database has accepted this process before.
	worked bool
}

// Run works until the context ends and then stops in order. Errors: *FaultsError when something must be fixed first, *RefusedError
// when the source is not the recorded one, else what went wrong.
//
// When the tables of a pattern have changed, or the lease was obtained or lost, it stops in order and starts again.
func Run(ctx context.Context, cfg *config.Config, opts Options, log *zap.Logger) (err error) {
	defer context.AfterFunc(ctx, func() {
		if err := systemd.Stopping(); err != nil {
			log.Warn("systemd could not be notified of the stop", zap.Error(err))
		}
	})()
	p := newProcess(cfg, opts, log)
	defer func() { err = errors.Join(err, p.lease.close()) }()
	for {
		in := newInstance(p)
		err := errors.Join(in.run(ctx), in.close())
		if err == nil { // an error is the last line itself
			log.Info(in.ended(ctx), zap.Duration("uptime", time.Since(in.started)))
		}
		if err != nil || ctx.Err() != nil || !in.outdated.Load() {
			return err
		}
		if in.active != nil {
			p.opts.AcceptNewSource = false // it was meant for the first start
		}
	}
}

func newProcess(cfg *config.Config, opts Options, log *zap.Logger) *process {
	return &process{cfg: cfg, opts: opts, log: log, past: history.NewRecorder()}
}

// newInstance makes an instance that has opened nothing yet.
func newInstance(p *process) *instance {
	in := &instance{process: p, started: time.Now(), registry: prometheus.NewRegistry()}
	in.meter = operator.NewMeter(in.started)
	in.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "canal_outbox_build_info", Help: "1, with the version as a label.",
			ConstLabels: prometheus.Labels{"version": p.opts.Version},
		}, func() float64 { return 1 }))
	return in
}

// ended is the last line of an instance that ended without an error.
func (in *instance) ended(ctx context.Context) string {
	switch {
	case ctx.Err() != nil || !in.outdated.Load():
		return "stopped"
	case in.active == nil:
		return "no longer standby, starting as active"
	}
	return "stopped, starting again with what has changed"
}
