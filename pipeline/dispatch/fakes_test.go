package dispatch_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

type Config = dispatch.Config

// bench is dispatch with fakes around it, in a bubble of virtual time.
type bench struct{ *flowtest.Way }

// suspended reports whether the sweep must skip a topic.
func (b *bench) suspended(topic string) bool {
	_, left := b.Reserve([]outbox.Candidate{{Topic: topic}})
	return len(left) > 0
}

// run gives f a running dispatch and ends it afterwards.
func run(t *testing.T, cfg Config, f func(*bench)) { runTable(t, cfg, flowtest.Table{}, f) }

// runTable is run with rows in the table.
func runTable(t *testing.T, cfg Config, rows flowtest.Table, f func(*bench)) {
	var b *bench
	flowtest.Run(t, rows, func(w *flowtest.World) flowtest.Flow {
		b = &bench{flowtest.NewWay(cfg, w)}
		return b.Way
	}, func() { f(b) })
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
