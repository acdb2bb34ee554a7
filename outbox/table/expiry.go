package table

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Names of the tables that rows move to, behind the name of their own table.
const (
	ArchiveSuffix = "_archive"
	FailedSuffix  = "_failed"
)

// Expiry says which final rows leave a table, and where they go.
type Expiry struct {
	Status outbox.Status // Sent or Failed; rows in no other state leave
	Age    time.Duration // since the row got this status, by the database's clock
	Into   string        // the end of the name of the table that they move to; "" deletes them
	// Retried says that rows with this status are tried again (Table.FailedEvery): their age counts from the first failure, not from the last.
	Retried bool
}

// FinalSince are the roles that tell when a row became final, the best first.
func FinalSince(status outbox.Status) []Column {
	if status == outbox.Sent {
		return []Column{SentAt, LastExecTime, UpdatedAt, CreatedAt}
	}
	return []Column{LastExecTime, UpdatedAt, CreatedAt}
}

// Left is what became of rows that were to leave.
type Left struct {
	Rows    int // are gone from the table
	Skipped int // another session holds their lock, or they have changed since they were seen
	Refused int // the server does not let them go, for their data: a key that the other table has already, a trigger
	// ID and Reason are those of the last refused row.
	ID, Reason string
}

// Add puts two results together.
func (l *Left) Add(more Left) {
	l.Rows, l.Skipped, l.Refused = l.Rows+more.Rows, l.Skipped+more.Skipped, l.Refused+more.Refused
	if more.Refused > 0 {
		l.ID, l.Reason = more.ID, more.Reason
	}
}
