package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq"
	"github.com/canal-outbox/canal-outbox/sink/stdout"
)

//go:generate go run ./reference ../../docs/configuration.md

// sinkSection is what a sink's package brings: its section of the configuration, a pointer to a struct.
type sinkSection interface {
	config.Section
	// Open makes the sink that the section describes. It does no I/O but reading files that the section names.
	Open(limits sink.Limits, log *zap.Logger, reg prometheus.Registerer) (sink.Sink, error)
	// MaxBody is the size from which on a body is refused; 0: none.
	MaxBody() setting.Bytes
	// Check asks an open sink what only this kind can tell, for doctor. It publishes nothing.
	Check(ctx context.Context, opened sink.Sink, newest sink.Newest) []server.Finding
}

// Sinks are all there are. A new one is a line here and a folder of its own.
var Sinks = config.Sinks{
	kind("rocketmq", rocketmq.NewSection),
	kind("kafka", kafka.NewSection),
	kind("stdout", stdout.NewSection),
}

func kind[S sinkSection](name string, section func() S) config.SinkKind {
	return config.SinkKind{Name: name, New: func() config.Section { return section() }}
}

// newSink makes the configured sink, behind a fence; nil: without one. None does I/O before its first message.
func newSink(cfg *config.Config, fence *relay.Fence, log *zap.Logger, reg prometheus.Registerer) (sink.Sink, error) {
	section, is := cfg.Sink.Section().(sinkSection)
	if !is {
		return nil, fmt.Errorf("the sink %q cannot be opened: please report this", cfg.Sink.Kind())
	}
	limits := sink.Limits{Messages: cfg.Pipeline.MaxInFlight, Bytes: int(cfg.Pipeline.MaxInFlightBytes)}
	if fence == nil {
		return section.Open(limits, log, reg)
	}
	limits.May = fence.May
	s, err := section.Open(limits, log, reg)
	if err != nil {
		return nil, err
	}
	return fence.Sink(s), nil
}
