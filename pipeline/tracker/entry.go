package tracker

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Entry is one row that the relay owns. It is in the registry from Admit, Reserve or Own until the table shows the row's
// completion (Written) or the row is left to the sweep (Drop, Release). Only the goroutine that holds an entry uses its exported
// fields.
type Entry struct {
	Message    *outbox.Message // nil until a sweep has read the row back, of an entry of the journal, and once there is a completion
	Size       int             // of the message, in bytes
	RetryCount int             // of the row, as the table showed it last: the guard of a refusal
	Sends      Sends
	LogOnly    bool // its table has no status, see kept.go
	Delayed    bool // when the log showed it, it was due later by its producer's will

	id     outbox.Identity
	origin origin
	seq    uint64 // its transaction in the low-water mark; 0 when it holds none back. Guarded by Tracker.mu
	listed bool   // it is in the registry, under its id. Guarded by Tracker.mu
	aside  bool   // it does not count in Unwritten, see Refused. Guarded by Tracker.mu
}

// Sends is what dispatch remembers of a row; it is here so that a row costs one allocation. Dispatch alone uses it.
type Sends struct {
	Count    int       // how often it was handed to the sink
	First    time.Time // of its first send; zero before, and once there is a completion
	RetryAt  time.Time // in the retry buffer: not before
	InFlight bool      // in the sink's hands
	Unsure   bool      // a send of it had no answer: the broker may have a copy
	Sequence uint64    // of rows that are LogOnly: in which they came

	Probes     int       // how often it was sent, or is to be sent, to see whether a part of the cluster is back
	ProbeUntil time.Time // when that ends

	// Where a table keeps the order of its keys, see keyorder.
	Reports uint64 // of a row of the log: 1 and the reports of deferred rows before it; 0: not known yet
	Queued  bool   // in memory, at the sink or behind another row of its key
	SetBack bool   // it was FAILED before this attempt
	Behind  *Entry // the next row of its key, which waits until this one is sent
}

// origin is how a row came to us.
type origin uint8

const (
	fromLog origin = iota
	fromSweep
	fromJournal
)

// Row implements outbox.Entry.
func (e *Entry) Row() outbox.Identity { return e.id }

// Swept reports that the sweep found the row and that the log has not shown it.
func (e *Entry) Swept() bool { return e.origin == fromSweep }

// Logged reports that the log has shown the row first.
func (e *Entry) Logged() bool { return e.origin == fromLog }

// Of returns the entry that a message, candidate or completion carries; nil when it carries none.
func Of(carried outbox.Entry) *Entry {
	e, _ := carried.(*Entry)
	return e
}
