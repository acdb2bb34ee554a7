package relay

import (
	"context"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Hold stops the intake, of the reader and of the sweep, over restarts too; rows in flight are completed. With nil the intake
// continues from the low-water mark. If the log was purged meanwhile, that is a gap, and the sweep covers it.
func (r *Relay) Hold(p *outbox.Pause) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.active {
		return ErrNotRunning
	}
	if err := r.parts.State.SetPause(p); err != nil {
		return err
	}
	if p != nil {
		r.log.Warn("the intake is stopped by an operator: rows wait in the table, and what is in flight is completed",
			zap.String("by", p.By), zap.String("reason", p.Reason))
	} else {
		r.log.Info("the intake is started again")
	}
	r.Flow.Pause(p != nil)
	if p == nil {
		r.triggers.Trigger()
	}
	if r.interrupt != nil && r.pending == nil { // an order that is being carried out looks at the pause by itself
		r.pending = &move{done: make(chan error, 1)}
		r.interrupt()
	}
	return nil
}

// follow runs the reader from a position, or waits in its place while the relay is paused, until it is interrupted.
func (r *Relay) follow(ctx context.Context, from outbox.Position) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.interrupt = cancel
	paused := r.parts.State.Pause() != nil
	if r.pending != nil { // that came between two runs
		cancel()
	}
	r.mu.Unlock()
	if paused {
		<-run.Done()
		return nil
	}
	r.handler.bare = from.GTIDs == ""
	return r.reader.Run(run, from)
}
