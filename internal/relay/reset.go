package relay

import (
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// reset makes the running relay go on from another position. The low-water mark comes first: it refuses what cannot be read. What
// ack has read of it before carries the old epoch and moves the stored checkpoint no more, whenever its commit comes.
func (r *Relay) reset(id server.ID, to outbox.Position, reason string) error {
	epoch, err := r.Flow.Reset(id.Flavor, to)
	if err != nil {
		return err
	}
	return r.parts.State.Reset(id, to, epoch, reason)
}
