package canal

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// kind is what an event of the log means for a transaction.
type kind uint8

const (
	kindNothing    kind = iota // known, and without meaning here (annotations, table maps, foreign rows, ...)
	kindReset                  // a log file or a stream begins: an open group was never committed
	kindGTID                   // opens a group
	kindBegin                  // Query BEGIN, XA START, XA END: the group has an ender of its own
	kindInsert                 // rows of a mapped table
	kindChange                 // UPDATE or DELETE rows of a mapped table
	kindCommit                 // XID or Query COMMIT
	kindPayloadEnd             // behind the last event of a compressed transaction
	kindRollback               // Query ROLLBACK
	kindStatement              // any other Query
	kindPrepare                // XA PREPARE
	kindXACommit               // XA COMMIT, perhaps long after the PREPARE
	kindXARollback             // XA ROLLBACK, likewise
	kindIncident               // the server says that it lost events
	kindUnknown                // a type that this version does not know
)

// event is one event of the log as the assembler sees it. It is reused: nothing of it may be kept but strings.
type event struct {
	kind kind
	end  outbox.Position // behind the event; the file always, the offset where the server gives it

	gtid      outbox.GTID // kindGTID
	begun     bool        // kindGTID: the group has an ender (MariaDB says so here, MySQL by the BEGIN that follows)
	committed time.Time   // kindGTID: exact commit time, if the log has it; others: the header's second

	table   *mapped   // kindInsert, kindChange
	rows    rowImages // kindInsert
	names   []*mapped // kindStatement: the mapped tables its text names
	xid     string    // kindBegin of an XA branch, kindXACommit, kindXARollback: the id as the server prints it
	undo    bool      // kindStatement: ROLLBACK TO, which is written when it took rows back that the log shows
	inserts bool      // kindStatement: it may have inserted rows that the log does not show
	final   bool      // kindPrepare: COMMIT ... ONE PHASE, no outcome follows
	typ     byte      // kindUnknown: the type's number
}

// rowImages are the rows of one insert event, decoded only if somebody wants them.
type rowImages interface {
	// count is the number of rows; 0 when the images cannot be walked.
	count() int
	// messages appends what can be mapped and returns how many rows could not.
	messages(to []*outbox.Message) (out []*outbox.Message, unmapped int)
}
