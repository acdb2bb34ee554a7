package pipeline_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/canal-outbox/canal-outbox/pipeline"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

type Config = pipeline.Config

// bench is a pipeline with fakes around it, in a bubble of virtual time.
type bench struct{ *flowtest.World }

// run gives f a running pipeline and ends it afterwards.
func run(t *testing.T, cfg Config, f func(*bench)) {
	flowtest.Run(t, cfg, flowtest.Table{}, func(w *flowtest.World) { f(&bench{w}) })
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
