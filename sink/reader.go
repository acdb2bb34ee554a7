package sink

import (
	"context"
	"time"
)

// Record is one message of a topic.
type Record struct {
	MessageID string // "" when its producer set none
	Body      []byte // nil for none; valid only during the call
	At        time.Time
	Position  string // in the topic, for people: partition or queue, and offset
	// Transactional says that the record is of a transaction, which may have been aborted. This relay's own are not.
	Transactional bool
}

// Extent describes what a Read covered.
type Extent struct {
	// Shortened is set when the topic no longer holds the start of the requested range: its retention has removed records that
	// may have been stored at or after from.
	Shortened bool
	// Compacted is set when the topic is known to drop older records of a key.
	Compacted bool
}

// Reader is a Sink that can read back what it has published. Reconciliation uses it, the flow does only as a CommittedReader.
type Reader interface {
	// Read calls each with the records of a topic on the caller's goroutine, in order within a partition or queue only. It reads
	// from the first record with a time at or after from to the first one at or after to (zero: to the end), as the broker's time
	// index has them, and at most to the topic's end at the time of the call. So two calls of which one begins where the other
	// ends return each record once. At is the time by which the broker finds records. An error of each ends the reading and is
	// returned unchanged.
	Read(ctx context.Context, topic string, from, to time.Time, each func(Record) error) (Extent, error)
}

// CommittedReader is a Reader that can tell when its records are as safe as acknowledged ones, and complete. Then a record proves that its
// message was published.
type CommittedReader interface {
	Reader
	// Reachable returns nil when any broker answers, also one whose topics were not used yet.
	Reachable(ctx context.Context) error
	// Committed waits until no record of the topic that Read has returned before can be missing after a failure that an acknowledged
	// record survives, and until Read returns what was acknowledged before the call. With an error nothing is known of them.
	Committed(ctx context.Context, topic string) error
}
