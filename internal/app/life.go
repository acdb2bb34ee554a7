package app

import (
	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// newLife leaves the first sign of life; nil where read_back is off or cannot work. A shadow run publishes nothing, so it leaves what it finds.
func (d *daemon) newLife(tables []*table.Table) (*relay.Life, error) {
	if d.opts.Shadow {
		return nil, nil
	}
	signs := checkpoint.Signs(d.cfg.Checkpoint.Dir)
	reader, can := relay.Unfenced(d.sink).(sink.CommittedReader)
	if !d.cfg.ReadBack.Enabled || !can {
		return nil, signs.Remove() // it would be old when read_back is on again
	}
	named := map[string]bool{}
	for _, t := range tables {
		named[t.Name()] = t.NamesMessages() && !t.Mapping().Ordered // see decision 28
	}
	settings := relay.DefaultLife(d.cfg.Fallback.ClaimTimeout)
	settings.MaxBytes, settings.MaxTime = int64(d.cfg.ReadBack.MaxBytes), d.cfg.ReadBack.MaxTime
	return relay.NewLife(relay.LifeParts{
		Signs: signs, Source: d.asker, Checkpoint: d.state.Checkpoint, Reader: reader, TookOver: d.held.TookOver(),
		Names: func(table string) bool { return named[table] },
	}, settings, d.log.Named("read_back"), d.registry), nil
}
