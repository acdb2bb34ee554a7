package ack

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// instant answers every call at once and counts rows.
type instant struct{ written atomic.Int64 }

func (i *instant) Settled([]outbox.Completion)      {}
func (i *instant) Written(list []outbox.Completion) { i.written.Add(int64(len(list))) }
func (i *instant) Passed() []outbox.Completion      { return nil }
func (i *instant) Leave([]outbox.Completion)        {}
func (i *instant) Refused([]outbox.Completion)      {}

func (i *instant) Fetch([]outbox.Completion) []outbox.Completion { return nil }

func (i *instant) Newest() uint64 { return 0 }
func (i *instant) Sent(_ uint64, into []outbox.Completion) ([]outbox.Completion, error) {
	return into, nil
}

func (i *instant) Checkpoint() (outbox.Position, uint64, bool) { return outbox.Position{}, 0, false }

func (i *instant) Commit([]outbox.Completion, []outbox.Identity, *outbox.Position, uint64) error {
	return nil
}

func (i *instant) Apply(context.Context, []outbox.Completion) ([]outbox.WriteError, error) {
	return nil, nil
}

// BenchmarkAcker measures a sent row from Add until it is written, without journal and table.
func BenchmarkAcker(b *testing.B) {
	world := &instant{}
	a := New(Config{CommitEvery: time.Microsecond}, world, world, world, zap.NewNop(), prometheus.NewRegistry())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	rows := completions(shop, 1, 500, outbox.ActionMarkSent)
	b.ReportAllocs()
	for b.Loop() {
		a.Add(rows)
		for a.Pending() > 5000 {
			time.Sleep(10 * time.Microsecond)
		}
	}
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(world.written.Load()), "ns/row")
}
