package recovery_test

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

// connect opens a stream with a window up to a transaction.
func (b *bench) connect(from, to uint64) {
	b.T.Helper()
	if err := b.Connected(b.Ctx, flowtest.End(from), flowtest.End(to)); err != nil {
		b.T.Fatal(err)
	}
}

// reset sets the position elsewhere.
func (b *bench) reset(to uint64) {
	b.T.Helper()
	if _, err := b.Reset(outbox.MySQL, flowtest.End(to)); err != nil {
		b.T.Fatal(err)
	}
}

// run gives f a running pipeline and ends it afterwards.
func run(t *testing.T, cfg Config, f func(*bench)) {
	flowtest.Run(t, cfg, flowtest.Table{}, func(w *flowtest.World) { f(&bench{w}) })
}

// runOrdered is run with a table that keeps the order of its keys.
func runOrdered(t *testing.T, cfg Config, f func(*bench)) {
	cfg.Ordered = []string{"shop.t"}
	run(t, cfg, f)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
