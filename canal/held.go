package canal

import (
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Rows of a table without a status cannot be left to a sweep. Where other tables' rows would be deferred, these stop the reader
// before the transaction. It tries again until a look at the server helps or an operator moves the checkpoint behind the
// transaction.

// heldError reports a transaction with rows that the reader can neither publish nor leave to a sweep.
type heldError struct {
	table string
	cause outbox.Cause
	end   outbox.Position // of the transaction
}

// whyHeld explains a cause for such rows.
var whyHeld = map[outbox.Cause]string{
	outbox.CauseXA:        "they belong to an XA transaction, whose outcome the log does not show here",
	outbox.CauseStatement: "a statement may have inserted rows or taken some back, and the log does not show which: set binlog_format=ROW",
	outbox.CauseUnmapped:  "their columns cannot be named with certainty: a statement in the log that is not understood changed the table before them and another one after them, or the columns differ from the configuration; rows written with binlog_row_metadata=FULL have names",
	outbox.CauseUnknown:   "the end of their transaction is unknown",
}

// Error implements error.
func (e *heldError) Error() string {
	return fmt.Sprintf("the reader is stopped, and publishing of every table with it: rows of %s in the transaction that ends at %s cannot be published (%s). "+
		"The table has no status, so no sweep would find them. To continue without these rows: canal-outbox checkpoint set --file %s --pos %d",
		e.table, e.end, whyHeld[e.cause], e.end.File, e.end.Offset)
}

// largeError reports that a committed transaction has more rows of tables without a status than fit into memory: it is read
// again, in pieces. The first reading was needed to know that it is committed.
type largeError struct{ end outbox.Position }

// Error implements error.
func (e *largeError) Error() string {
	return fmt.Sprintf("the transaction that ends at %s is too large for memory and is read in pieces", e.end)
}
