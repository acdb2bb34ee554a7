package pipeline

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// bench is a pipeline with fakes around it, in a bubble of virtual time.
type bench struct {
	*flowtest.World
	*Pipeline
}

// run gives f a running pipeline and ends it afterwards.
func run(t *testing.T, cfg Config, f func(*bench)) {
	var b *bench
	flowtest.Run(t, flowtest.Table{}, func(w *flowtest.World) flowtest.Flow {
		b = &bench{w, New(cfg, w.Tracker, w, w.Sink, w.Acks, w.Rows(), w.Log, w.Reg)}
		return b.Pipeline
	}, func() { f(b) })
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
