// Package tracing exports spans to an OpenTelemetry collector for the messages whose trace is sampled: those whose header
// traceparent (W3C Trace Context) says so. Each message has three spans: outbox, from the commit until the row is SENT, and in
// it the send and the status update.
//
// Guarantee: the flow never waits for the collector. Spans that it does not take are dropped; the first failure is logged, and the end of
// the failures. No span holds a body. The goroutine that exports belongs to the SDK and ends in Close.
package tracing

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Config says where spans go.
type Config struct {
	Endpoint string // http or https address of OTLP over HTTP; without a path: /v1/traces
	System   string // kafka, rocketmq: the attribute messaging.system
	Version  string // of the relay
}

// Tracer makes spans. A nil *Tracer makes none.
type Tracer struct {
	system   string
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	log      *zap.Logger
	giveUp   context.CancelFunc // ends an export that hangs

	mu      sync.Mutex
	waiting map[outbox.Identity]published // acknowledged by the broker and not SENT yet: the flow bounds them
	count   atomic.Int64                  // of waiting, so that a relay without sampled messages takes no lock
}

// published is a message that the table does not show as SENT.
type published struct {
	ctx context.Context // with the span outbox
	at  time.Time
}

// New makes a Tracer; it does no I/O. Credentials and certificates come from the variables OTEL_EXPORTER_OTLP_* of the SDK.
func New(cfg Config, log *zap.Logger) (*Tracer, error) {
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(withPath(cfg.Endpoint)))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	working, giveUp := context.WithCancel(context.Background())
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&reporting{SpanExporter: exporter, working: working, log: log}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "canal-outbox"), attribute.String("service.version", cfg.Version),
		)),
	)
	return &Tracer{
		system: cfg.System, provider: provider, tracer: provider.Tracer("github.com/canal-outbox/canal-outbox"), log: log,
		giveUp: giveUp, waiting: map[outbox.Identity]published{},
	}, nil
}

// withPath is an address with the path that OTLP prescribes, where it has none.
func withPath(endpoint string) string {
	scheme, rest, _ := strings.Cut(endpoint, "://")
	if host, path, _ := strings.Cut(rest, "/"); path == "" {
		return scheme + "://" + host + "/v1/traces"
	}
	return endpoint
}

// Close exports what is left for as long as patience lasts, and ends what it began.
func (t *Tracer) Close(patience time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	for id, p := range t.waiting { // the journal has them; the next start writes them
		trace.SpanFromContext(p.ctx).End()
		delete(t.waiting, id)
	}
	t.mu.Unlock()
	// Not a deadline of Shutdown, which returns then and leaves its goroutine at work.
	defer time.AfterFunc(patience, t.giveUp).Stop()
	if err := t.provider.Shutdown(context.Background()); err != nil {
		t.log.Warn("the last spans did not reach the collector", zap.Error(err))
	}
	t.giveUp()
}

// Sink is a sink whose sends are traced; s itself without a Tracer.
func (t *Tracer) Sink(s sink.Sink) sink.Sink {
	if t == nil {
		return s
	}
	return traced{s, t}
}

// traced is a sink whose sends are traced.
type traced struct {
	sink.Sink
	tracer *Tracer
}

// LongestDelay implements sink.Delayer.
func (s traced) LongestDelay() time.Duration {
	if d, can := s.Sink.(sink.Delayer); can {
		return d.LongestDelay()
	}
	return 0
}

// Send implements sink.Sink.
func (s traced) Send(batch []*outbox.Message, done func([]sink.Result)) {
	var sending map[*outbox.Message]context.Context // with the span of the send, in that of the message
	for _, m := range batch {
		if ctx := s.tracer.begin(m); ctx != nil {
			if sending == nil {
				sending = map[*outbox.Message]context.Context{}
			}
			sending[m] = ctx
		}
	}
	if sending == nil {
		s.Sink.Send(batch, done)
		return
	}
	s.Sink.Send(batch, func(results []sink.Result) {
		for i := range results {
			if ctx := sending[results[i].Message]; ctx != nil {
				s.tracer.answered(ctx, &results[i])
			}
		}
		done(results)
	})
}

// outboxSpan is where the span of the message is kept in the context of its send.
type outboxSpan struct{}

// begin starts the spans of a message and of its send; nil when its trace is not sampled.
func (t *Tracer) begin(m *outbox.Message) context.Context {
	parent := propagation.TraceContext{}.Extract(context.Background(), headers(m.Headers))
	if !trace.SpanContextFromContext(parent).IsSampled() {
		return nil
	}
	ctx, _ := t.tracer.Start(parent, "outbox "+m.Topic, trace.WithTimestamp(m.Since), trace.WithAttributes(
		attribute.String("db.collection.name", m.Table), attribute.String("canal_outbox.row", m.ID), attribute.String("canal_outbox.path", m.Path.String()),
	))
	sending, _ := t.tracer.Start(ctx, "send "+m.Topic, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("messaging.system", t.system), attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", m.Topic), attribute.String("messaging.message.id", m.MessageID),
		attribute.Int("messaging.message.body.size", len(m.Body)),
	))
	return context.WithValue(sending, outboxSpan{}, ctx)
}

// answered ends the send, and the message's span unless its row is to be SENT.
func (t *Tracer) answered(sending context.Context, r *sink.Result) {
	ctx, _ := sending.Value(outboxSpan{}).(context.Context)
	span, all, m := trace.SpanFromContext(sending), trace.SpanFromContext(ctx), r.Message
	if r.Class != outbox.ClassNone {
		span.SetStatus(codes.Error, r.Class.String())
		all.SetStatus(codes.Error, r.Class.String())
	} else if r.BrokerID != "" {
		span.SetAttributes(attribute.String("canal_outbox.broker_id", r.BrokerID))
	}
	now := time.Now()
	span.End(trace.WithTimestamp(now))
	if r.Class != outbox.ClassNone || m.LogOnly || m.Path == outbox.PathRedelivery { // no status update follows that would end it
		all.End(trace.WithTimestamp(now))
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[m.Identity] = published{ctx, now}
	t.count.Store(int64(len(t.waiting)))
}

// Written is called with each batch of status updates; not are those of the batch that were not applied.
func (t *Tracer) Written(batch []outbox.Completion, not []outbox.WriteError) {
	if t == nil || t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, refused := time.Now(), map[outbox.Identity]bool{}
	for i := range not {
		refused[not[i].Identity] = !not[i].Retryable
	}
	for i := range batch {
		p, is := t.waiting[batch[i].Identity]
		final, failed := refused[batch[i].Identity]
		if !is || failed && !final {
			continue
		}
		_, update := t.tracer.Start(p.ctx, "mark sent "+batch[i].Table, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(p.at))
		if final {
			update.SetStatus(codes.Error, "refused by the table")
		}
		update.End(trace.WithTimestamp(now))
		trace.SpanFromContext(p.ctx).End(trace.WithTimestamp(now))
		delete(t.waiting, batch[i].Identity)
	}
	t.count.Store(int64(len(t.waiting)))
}

// headers are a message's headers as the propagator reads them. Their names know no case.
type headers []outbox.Header

// Get implements propagation.TextMapCarrier.
func (h headers) Get(name string) string {
	for i := range h {
		if strings.EqualFold(h[i].Name, name) {
			return h[i].Value
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier; nothing is ever set.
func (h headers) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (h headers) Keys() []string { return nil }

// reporting logs the first failure of an exporter, and that it works again.
type reporting struct {
	sdktrace.SpanExporter
	working context.Context // until Close has waited for long enough
	log     *zap.Logger
	failing atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter. It returns nil: the SDK would tell a global handler.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.working, cancel)()
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !r.failing.Swap(true):
		r.log.Warn("the collector takes no spans: they are dropped until it does", zap.Error(err))
	case err == nil && r.failing.Swap(false):
		r.log.Info("the collector takes spans again")
	}
	return nil
}
