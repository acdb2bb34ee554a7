package app

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/tracing"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// watchSink returns the sink with the observers of its results, and the tracer, which is nil without tracing.endpoint.
func (in *instance) watchSink() (out sink.Sink, tracer *tracing.Tracer, err error) {
	out = in.sink
	if in.opts.answered != nil {
		out = observed{out, in.opts.answered}
	}
	if endpoint := in.cfg.Tracing.Endpoint.Reveal(); endpoint != "" && !in.opts.Shadow {
		tracer, err = tracing.New(tracing.Config{Endpoint: endpoint, System: in.cfg.Sink.Kind(), Version: in.opts.Version}, in.log.Named("tracing"))
	}
	in.onClose(func() error {
		tracer.Close(2 * time.Second)
		return nil
	})
	return tracer.Sink(out), tracer, err
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
