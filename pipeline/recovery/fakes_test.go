package recovery_test

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
	"github.com/canal-outbox/canal-outbox/pipeline/recovery"
)

type Config = dispatch.Config

// bench is recovery with dispatch behind it, the calls of a reader, and fakes around it, in a bubble of virtual time.
type bench struct {
	*flowtest.Way
	recovery *recovery.Recovery
}

func (b *bench) Run(ctx context.Context) error {
	window := make(chan struct{})
	go func() {
		defer close(window)
		b.recovery.Run(ctx)
	}()
	err := b.Way.Run(ctx)
	<-window
	return err
}

// Offer takes one transaction over: its rows wait for their look-up in the window, and go to the sink behind it.
func (b *bench) Offer(ctx context.Context, txn *outbox.Txn) error {
	if err := b.recovery.Lock(ctx); err != nil {
		return err
	}
	defer b.recovery.Unlock()
	b.Deferred(txn.Deferred)
	rows := b.Tracker.Admit(b.Tracker.Begin(txn), txn.Messages, nil)
	if b.recovery.Covers(txn.End) {
		if err := b.recovery.Add(ctx, rows); err != nil {
			return err
		}
	} else if err := b.recovery.Check(ctx); err != nil {
		return err
	} else if _, err := b.Send(ctx, rows); err != nil {
		return err
	}
	b.Tracker.SetOffered(txn.End)
	if b.recovery.Passed(txn.End) {
		return b.recovery.Check(ctx)
	}
	return nil
}

// connect opens a stream with a window up to a transaction.
func (b *bench) connect(from, to uint64) {
	b.T.Helper()
	if err := b.recovery.Lock(b.Ctx); err != nil {
		b.T.Fatal(err)
	}
	defer b.recovery.Unlock()
	if err := b.recovery.Check(b.Ctx); err != nil {
		b.T.Fatal(err)
	}
	b.recovery.Open(flowtest.End(to))
	b.Tracker.SetOffered(flowtest.End(from))
}

// reset sets the position elsewhere.
func (b *bench) reset(to uint64) {
	b.T.Helper()
	if err := b.recovery.Lock(b.Ctx); err != nil {
		b.T.Fatal(err)
	}
	defer b.recovery.Unlock()
	if _, err := b.recovery.Reset(outbox.MySQL, flowtest.End(to)); err != nil {
		b.T.Fatal(err)
	}
}

// run gives f a running flow and ends it afterwards.
func run(t *testing.T, cfg Config, f func(*bench)) {
	var b *bench
	flowtest.Run(t, flowtest.Table{}, func(w *flowtest.World) flowtest.Flow {
		way := flowtest.NewWay(cfg, w)
		b = &bench{way, recovery.New(w.Tracker, way.Dispatch, w, w.Rows(), w.Log, w.Reg)}
		return b
	}, func() { f(b) })
}

// runOrdered is run with a table that keeps the order of its keys, which was read.
func runOrdered(t *testing.T, cfg Config, f func(*bench)) {
	cfg.Ordered = []string{"shop.t"}
	run(t, cfg, func(b *bench) {
		synctest.Wait()
		f(b)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
