package pipeline

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// registry holds the identities in the relay's hands: each has one owner, the fast path or the sweep, from the
// reservation until its outcome is written in MySQL or the row was deferred. The pipeline's lock guards it.
type registry map[outbox.Identity]*entry

type entryState uint8

const (
	reserved  entryState = iota // waiting for the recovery check, a claim or room
	inFlight                    // in the sink's hands
	held                        // to be sent again: its outcome was unknown or its broker away
	answered                    // completion handed to ack, not written in MySQL yet
	journaled                   // read from the journal at start, not written in MySQL yet
)

// entry is one owned row.
type entry struct {
	id      outbox.Identity
	message *outbox.Message // nil until the row was read back (sweep) and for journal entries
	seq     uint64          // its transaction in the low-water mark; 0 on the sweep path
	state   entryState
	size    int
	sends   int       // how often it was handed to the sink
	unknown int       // how many of these ended without an answer while others of its topic had one
	silence time.Time // when the last of these ended without an answer, at first when it was sent
	first   time.Time // of its first send
	retryAt time.Time // state held
}

// Row implements outbox.Entry.
func (e *entry) Row() outbox.Identity { return e.id }

// swept tells that the message came from the table and not from the log.
func (e *entry) swept() bool { return e.message != nil && e.message.Path == outbox.PathSweep }

// reserve takes ownership for e unless somebody has it.
func (r registry) reserve(id outbox.Identity, e *entry) bool {
	if _, owned := r[id]; owned {
		return false
	}
	r[id] = e
	return true
}
