package app

import (
	"context"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/tracing"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// watchSink is the sink with those around it who want to know of its answers.
func (d *daemon) watchSink() (out sink.Sink, err error) {
	out = d.sink
	if d.opts.answered != nil {
		out = heard{out, d.opts.answered}
	}
	if endpoint := d.cfg.Tracing.Endpoint.Reveal(); endpoint != "" && !d.opts.Shadow {
		d.tracer, err = tracing.New(tracing.Config{Endpoint: endpoint, System: d.cfg.Sink.Kind(), Version: d.opts.Version}, d.log.Named("tracing"))
	}
	return d.tracer.Sink(out), err
}

// tracedRows are tables whose status updates are traced.
type tracedRows struct {
	relay.Rows
	tracer *tracing.Tracer
}

// Apply implements ack.Tables.
func (r tracedRows) Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	not, err := r.Rows.Apply(ctx, batch)
	if err == nil {
		r.tracer.Written(batch, not)
	}
	return not, err
}
