package app

import (
	"context"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// newLife leaves the first sign of life; nil where read_back is off or cannot work. A shadow run publishes nothing, so it leaves what it finds.
func (d *daemon) newLife(tables []*table.Table) (*relay.Life, error) {
	if d.opts.Shadow {
		return nil, nil
	}
	signs := d.held.Signs
	reader, can := relay.Unfenced(d.sink).(sink.CommittedReader)
	if !d.cfg.ReadBack.Enabled || !can {
		return nil, signs.Remove() // it would be old when read_back is on again
	}
	named := map[string]bool{}
	for _, t := range tables {
		named[t.Name()] = t.NamesMessages() // see decision 28
	}
	settings := relay.DefaultLife(d.cfg.Fallback.ClaimTimeout)
	settings.MaxBytes, settings.MaxTime = int64(d.cfg.ReadBack.MaxBytes), d.cfg.ReadBack.MaxTime
	return relay.NewLife(relay.LifeParts{
		Signs: signs, Source: d.asker, Checkpoint: d.state.Checkpoint, Reader: reader, Shared: d.held,
		Names: func(table string) bool { return named[table] },
	}, settings, d.log.Named("read_back"), d.registry), nil
}

// forgetLife is called before rows are set back without a running relay: no relay that starts after a kill, or takes over, takes them for sent.
func (o *Offline) forgetLife(ctx context.Context) error {
	if err := checkpoint.Signs(o.cfg.Checkpoint.Dir).Remove(); err != nil {
		return err
	}
	name, _, err := LeaseTable(o.cfg, o.tables[0].Name())
	if err != nil || name == "" {
		return err
	}
	return lease.NewTable(o.db, name).Forget(ctx)
}
