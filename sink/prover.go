package sink

import (
	"context"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Prover is a Sink whose broker stores, in one step with the messages, which rows they are of. So no crash leaves a message of which the next
// process does not know, and the sink sends no row twice that it has reported.
//
// Order of calls: Recover, then Send and the others, then Close, then Finish. Before Recover has returned without an error every
// message gets ClassOutage.
type Prover interface {
	Sink

	// Recover ends what an earlier process with the same name had under way: nothing of it becomes visible afterwards. It returns the rows
	// that the broker has and that their tables may not show as SENT. tables are the names of those that the caller publishes. A
	// *NoProofError needs a person; after any other error it may be called again.
	Recover(ctx context.Context, tables []string) ([]outbox.Identity, error)

	// Settled takes rows that no start must find in Recover any more: their table shows them as SENT, or the checkpoint has passed them. Others
	// among them are ignored. It does not block.
	Settled([]outbox.Completion)

	// Mark stores which rows are not settled. From then on Recover finds no row that was settled at the call, unless it is sent again.
	Mark(ctx context.Context) error

	// Finish does the same after Close, if all that was sent was reported, and releases the rest.
	Finish(ctx context.Context) error
}

// NoProofError reports that the broker cannot keep the proof, or has another's. It says what to do.
type NoProofError struct{ Why string }

// Error implements error.
func (e *NoProofError) Error() string { return e.Why }
