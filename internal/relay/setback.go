package relay

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const (
	setBackPause = 20 * time.Millisecond
	setBackWait  = 5 * time.Second
)

// SetBack is called before an operator sets final rows back to PENDING: neither a status that is not written yet, nor the journal after a kill, shows
// them as SENT again. It waits for some seconds until the relay has none of them under way, and returns those that may be set back. A row that stays
// under way, because its table does not take the status, or because it is just being sent again, is left out and keeps no other from being set back.
// ErrNotRunning: a start may just write the journal to the tables.
func (r *Relay) SetBack(ctx context.Context, ids []outbox.Identity) (free []outbox.Identity, err error) {
	if !r.Ready() {
		return nil, ErrNotRunning
	}
	for until := time.Now().Add(setBackWait); slices.ContainsFunc(ids, r.tracker.Owns) && time.Now().Before(until); {
		if !outbox.Wait(ctx, setBackPause, nil) {
			return nil, context.Cause(ctx)
		}
	}
	free = slices.DeleteFunc(slices.Clone(ids), r.tracker.Owns)
	return free, r.parts.State.Commit(nil, free, nil, 0)
}
