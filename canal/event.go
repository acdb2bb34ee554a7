package canal

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// kind is the meaning of an event for a transaction.
type kind uint8

const (
	kindNothing    kind = iota // known, and without meaning here (annotations, table maps, foreign rows, ...)
	kindReset                  // a log file or a stream begins: an open group was never committed
	kindGTID                   // opens a group
	kindBegin                  // Query BEGIN, XA START, XA END: another event ends the group
	kindInsert                 // rows of a mapped table
	kindChange                 // UPDATE or DELETE rows of a mapped table
	kindCommit                 // XID or Query COMMIT
	kindPayloadEnd             // after the last event of a compressed transaction
	kindRollback               // Query ROLLBACK
	kindStatement              // any other Query
	kindPrepare                // XA PREPARE
	kindXACommit               // XA COMMIT, perhaps long after the PREPARE
	kindXARollback             // XA ROLLBACK, likewise
	kindIncident               // the server says that it lost events
	kindUnknown                // a type that this version does not support
)

// event is one event of the log as the assembler needs it. It is reused: only its strings may be kept.
type event struct {
	kind kind
	end  outbox.Position // after the event; the file always, the offset if the server sends it

	gtid      outbox.GTID // kindGTID
	begun     bool        // kindGTID: another event ends the group (MariaDB says so here, MySQL by the BEGIN that follows)
	committed time.Time   // kindGTID: exact commit time, if the log has it; others: the second in the header

	table   *mapped   // kindInsert, kindChange
	rows    rowImages // kindInsert
	names   []*mapped // kindStatement: the mapped tables in its text
	xid     string    // kindBegin of an XA branch, kindXACommit, kindXARollback: the id as the server prints it
	undo    bool      // kindStatement: ROLLBACK TO, which is written when rows that are in the log were rolled back
	inserts bool      // kindStatement: it may have inserted rows that the log does not show
	final   bool      // kindPrepare: COMMIT ... ONE PHASE, no outcome follows
	typ     byte      // kindUnknown: the number of the type
}

// rowImages are the rows of one insert event, decoded on demand.
type rowImages interface {
	// count is the number of rows; 0 when the images cannot be walked.
	count() int
	// messages appends what can be mapped and returns how many rows could not.
	messages(to []*outbox.Message) (out []*outbox.Message, unmapped int)
}
