package canal

import (
	"context"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// lookInterval is how many heartbeats lie between two looks at the server beside an open stream.
const lookInterval = 10

// checkPeriodically looks at the server now and then while a stream is open: at its clock, which may be set at any time (D13),
// and for a second reader with our server id, where the list of replicas shows one (A13). The returned function ends it.
func (r *Reader) checkPeriodically(ctx context.Context, info server.Info) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, lookInterval*r.cfg.Heartbeat); ctx.Err() == nil; pause(ctx, lookInterval*r.cfg.Heartbeat) {
			r.compareClocks(ctx)
			if info.ListsReplicas() {
				r.checkID(ctx, info)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (r *Reader) compareClocks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if offset, err := server.ClockOffset(ctx, r.db); err == nil { // if the server does not answer, the stream ends too
		r.gauge.compared(offset)
	}
}
