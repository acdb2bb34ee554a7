package dispatch_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

type Config = dispatch.Config

// bench is a pipeline with fakes around it, in a bubble of virtual time.
type bench struct{ *flowtest.World }

// suspended reports whether the sweep must skip a topic.
func (b *bench) suspended(topic string) bool {
	_, left := b.Reserve([]outbox.Candidate{{Topic: topic}})
	return len(left) > 0
}

// run gives f a running pipeline and ends it afterwards.
func run(t *testing.T, cfg Config, f func(*bench)) { runTable(t, cfg, flowtest.Table{}, f) }

// runTable is run with rows in the table.
func runTable(t *testing.T, cfg Config, rows flowtest.Table, f func(*bench)) {
	flowtest.Run(t, cfg, rows, func(w *flowtest.World) { f(&bench{w}) })
}

// runOrdered is run with a table that keeps the order of its keys.
func runOrdered(t *testing.T, cfg Config, f func(*bench)) {
	cfg.Ordered = []string{"shop.t"}
	run(t, cfg, f)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
