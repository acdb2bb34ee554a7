package stdout

import (
	"context"
	"os"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Section prints each message as a line of JSON: for trials, not for production. Write `stdout: {}`.
type Section struct{}

// NewSection returns the section, which has no keys.
func NewSection() *Section { return &Section{} }

// Validate reports nothing.
func (*Section) Validate(setting.Report) {}

// MaxBody is 0: there is no limit.
func (*Section) MaxBody() setting.Bytes { return 0 }

// Open returns the sink.
func (*Section) Open(limits sink.Limits, _ *zap.Logger, _ prometheus.Registerer) (sink.Sink, error) {
	s := New(os.Stdout)
	s.may = limits.May
	return s, nil
}

// Check reports nothing.
func (*Section) Check(context.Context, sink.Sink, sink.Newest) []server.Finding { return nil }
