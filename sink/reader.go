package sink

import (
	"context"
	"time"
)

// Record is what a topic holds of one message.
type Record struct {
	MessageID string // "" when whoever published it gave none
	Body      []byte // nil for none; valid during the call it is handed over in
	At        time.Time
	Place     string // where it is in the topic, for people: partition or queue, and offset
}

// Extent says what a Read had before it.
type Extent struct {
	// Shortened is set when the topic no longer holds the beginning of what was asked for: its retention has removed records
	// that may have been stored at or after from.
	Shortened bool
	// Compacted is set when the topic is known to drop records for which a later one of the same key exists.
	Compacted bool
}

// Reader is a Sink that can read back what it has published. It is no part of the flow: reconciliation uses it.
type Reader interface {
	// Read hands over the records of a topic in no order but that of each partition or queue, on the caller's goroutine. It
	// reads from the first record of a time at or after from up to the first one of a time at or after to (zero: to the end), as
	// the broker's index of times has them, and no further than the end which the topic has when Read is called. So two calls
	// of which one begins where the other ends hand over each record once. At is the time by which the broker looks records up.
	// An error of each ends the reading and is returned as it is.
	Read(ctx context.Context, topic string, from, to time.Time, each func(Record) error) (Extent, error)
}
