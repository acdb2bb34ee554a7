package app

import (
	"context"
	"errors"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// newLife leaves the first sign of life; nil where read_back is off or cannot work. A shadow run publishes nothing, so it leaves what it finds.
func (in *instance) newLife(tables []*table.Table, from relaySource) (*relay.Life, error) {
	if in.opts.Shadow {
		return nil, nil
	}
	signs := in.held.Signs
	if in.prover() != nil {
		return nil, signs.Remove() // the broker itself shows what was sent
	}
	reader, can := relay.Unfenced(in.sink).(sink.CommittedReader)
	if !in.cfg.ReadBack.Enabled || !can {
		return nil, signs.Remove() // it would be old when read_back is on again
	}
	named := map[string]bool{}
	for _, t := range tables {
		named[t.Name()] = t.NamesMessages() // see decision 28
	}
	settings := relay.DefaultLife(in.cfg.Fallback.ClaimTimeout)
	settings.MaxBytes, settings.MaxTime = int64(in.cfg.ReadBack.MaxBytes), in.cfg.ReadBack.MaxTime
	return relay.NewLife(relay.LifeParts{
		Signs: signs, Source: from, Checkpoint: in.state.Checkpoint, Reader: reader, Shared: in.held,
		Names: func(table string) bool { return named[table] },
	}, settings, in.log.Named("read_back"), in.registry), nil
}

// forgetSent is called before rows are set back without a running relay: no relay that starts after a kill, or takes over, takes them for sent.
func (o *Offline) forgetSent(ctx context.Context, ids []outbox.Identity) ([]outbox.Identity, error) {
	if provesSent(o.cfg) {
		return nil, errors.New("with sink.kafka.exactly_once a relay must run while rows are set back, because Kafka would take those that were sent last for " +
			"sent after a kill: start it, and use this command again")
	}
	if o.state != nil {
		if err := o.state.Commit(nil, ids, nil, 0); err != nil {
			return nil, err
		}
	}
	if err := checkpoint.Signs(o.cfg.Checkpoint.Dir).Remove(); err != nil {
		return nil, err
	}
	name, _, err := LeaseTable(o.cfg, o.tables[0].Name())
	if err != nil || name == "" {
		return ids, err
	}
	return ids, lease.NewTable(o.db, name).Forget(ctx)
}

// prover is the sink if its broker keeps the proof of what was sent; nil otherwise.
func (in *instance) prover() sink.Prover {
	p, _ := relay.Unfenced(in.sink).(sink.Prover)
	return p
}

// provesSent reports the same of a configuration.
func provesSent(cfg *config.Config) bool {
	section, can := cfg.Sink.Section().(interface{ Proves() bool })
	return can && section.Proves()
}

// setBack is called before rows are set back: no start after a kill takes them for sent. It returns those that may be set back.
func (in *instance) setBack(ctx context.Context, ids []outbox.Identity) ([]outbox.Identity, error) {
	free, err := in.relay.SetBack(ctx, ids)
	if err != nil {
		return nil, err
	}
	if p := in.prover(); p != nil {
		return free, p.Mark(ctx)
	}
	return free, in.life.SetBack(ctx, free)
}
