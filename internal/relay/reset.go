package relay

import (
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// reset makes the running relay continue from another position. The low-water mark comes first: it refuses a position that it
// cannot parse. A checkpoint that ack read before carries the old generation and no longer moves the stored one, whenever its commit
// comes.
func (r *Relay) reset(id server.ID, to outbox.Position, reason string) error {
	generation, err := r.Flow.Reset(id.Flavor, to)
	if err != nil {
		return err
	}
	return r.parts.State.Reset(id, to, generation, reason)
}
