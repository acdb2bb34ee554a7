package dispatch

import (
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// maxReported bounds what is remembered of rows that cannot be FAILED.
const maxReported = 100_000

// reported remembers which rows of tables without a code for FAILED were reported as failed, so that each is reported once and waits for
// the longest step from then on. It keeps the newest half of maxReported and the half before; what it forgets, and what a restart
// forgets, is reported once more unless the limit of its retries lies behind it. A row that is SENT later stays in it until then.
type reported struct {
	mu            sync.Mutex
	newer, before map[outbox.Identity]struct{}
}

func (r *reported) has(rule outbox.Retry, id outbox.Identity) bool {
	if !rule.Endless {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds(id)
}

// holds is called with mu held.
func (r *reported) holds(id outbox.Identity) bool {
	_, newer := r.newer[id]
	_, before := r.before[id]
	return newer || before
}

// add reports whether the row is reported for the first time.
func (r *reported) add(rule outbox.Retry, id outbox.Identity) bool {
	if !rule.Endless {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds(id) {
		return false
	}
	if r.newer == nil || len(r.newer) >= maxReported/2 {
		r.newer, r.before = map[outbox.Identity]struct{}{}, r.newer
	}
	r.newer[id] = struct{}{}
	return true
}
