package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/bench"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// benchPreset is the layout of the table that is measured.
const benchPreset = "outbox"

// Bench measures a relay between the servers of a configuration, on the table and the topic of the options, with a state directory that is
// removed. The relays and tables of the configuration are left alone. What the relay warns of goes to log.
func Bench(ctx context.Context, cfg *config.Config, opts bench.Options, version string, log *zap.Logger) (result bench.Result, err error) {
	if err := checkTopic(ctx, cfg, opts.Topic); err != nil {
		return result, err
	}
	ddl, err := migrations.DDL(benchPreset, opts.Table)
	if err != nil {
		return result, err
	}
	dir, err := os.MkdirTemp("", "canal-outbox-bench-")
	if err != nil {
		return result, fmt.Errorf("make a state directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := OpenDatabase(cfg)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	own := benchConfig(*cfg, opts.Table, dir)
	result, err = bench.Run(ctx, db, ddl, func(ctx context.Context, answered func([]sink.Result)) error {
		return Run(ctx, &own, Options{Version: version, answered: answered}, log)
	}, opts)
	if ctx.Err() != nil {
		return result, errors.New("interrupted: the relay is stopped")
	}
	return result, err
}

// benchConfig is a configuration for one table that no other relay shares and whose rows nothing but the flow touches.
func benchConfig(cfg config.Config, name, dir string) config.Config {
	cfg.Tables = []config.Table{{Name: name, Preset: benchPreset}}
	cfg.Checkpoint.Dir, cfg.Source.ServerID = dir, 0 // an id of its own comes from the directory
	cfg.Admin, cfg.Alerts, cfg.Retention = config.Admin{}, config.Alerts{}, config.Retention{}
	cfg.Lease.Enabled = false
	cfg.Fallback.ReadFrom = ""
	return cfg
}

// checkTopic reports a topic that does not exist, before anything is created.
func checkTopic(ctx context.Context, cfg *config.Config, topic string) (err error) {
	broker, err := newSink(cfg, nil, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	defer func() { err = errors.Join(err, broker.Close(ctx)) }()
	faults, err := broker.Topics(ctx, []string{topic})
	if err != nil {
		return fmt.Errorf("ask the broker for the topic %s: %w", topic, err)
	}
	if why := faults[topic]; why != nil {
		return fmt.Errorf("the topic %s: %w; create it, or name another one with --topic", topic, why)
	}
	return nil
}

// observed is a sink that passes each result to a callback.
type observed struct {
	sink.Sink
	answered func([]sink.Result)
}

// Send implements sink.Sink.
func (h observed) Send(batch []*outbox.Message, done func([]sink.Result)) {
	h.Sink.Send(batch, func(results []sink.Result) {
		h.answered(results)
		done(results)
	})
}
