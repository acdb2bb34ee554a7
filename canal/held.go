package canal

import (
	"fmt"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Rows of a table without a status cannot be left to a sweep. What another table would defer stops the reader before the transaction:
// it tries again and again, because a look at the server may help, until it works or an operator moves the checkpoint behind it.

// heldError says that a transaction has rows which the reader can neither publish nor leave to a sweep.
type heldError struct {
	table string
	cause outbox.Cause
	end   outbox.Position // of the transaction
}

// whyHeld is what a cause means here.
var whyHeld = map[outbox.Cause]string{
	outbox.CauseXA:        "they belong to an XA transaction, whose outcome the log does not show here",
	outbox.CauseStatement: "a statement may have inserted rows or taken some back, and the log does not show which: set binlog_format=ROW",
	outbox.CauseUnmapped:  "their columns cannot be named with certainty: set binlog_row_metadata=FULL, and compare the columns of the table with the configuration",
	outbox.CauseUnknown:   "their transaction has no end that is known",
}

// Error implements error.
func (e *heldError) Error() string {
	return fmt.Sprintf("the reader is held, and every table with it: rows of %s in the transaction that ends at %s cannot be published (%s). "+
		"The table has no status, so no sweep would find them. To go on without them: canal-outbox checkpoint set --file %s --pos %d",
		e.table, e.end, whyHeld[e.cause], e.end.File, e.end.Offset)
}

// largeError says that a committed transaction has more rows of tables without a status than fit into memory: it is read once more, in
// pieces. Only the end tells that the rows before were committed.
type largeError struct{ end outbox.Position }

// Error implements error.
func (e *largeError) Error() string {
	return fmt.Sprintf("the transaction that ends at %s is too large for memory and is read in pieces", e.end)
}
