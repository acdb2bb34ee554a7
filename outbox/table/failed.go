package table

import (
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// selectFailed is the statement with which a person reads the newest FAILED rows. It names the columns that identify a row and
// the reason of the failure, and no body. Where no row can be FAILED it shows the PENDING rows that were refused most often.
func (t *Table) selectFailed() string {
	var columns []string
	for _, role := range []Column{ID, MessageID, BizType, Key, Topic, RetryCount, FailReason} {
		if t.has(role) {
			columns = append(columns, t.column(role))
		}
	}
	code, order := t.mapping.Codes[outbox.Failed], t.column(ID)+" DESC"
	if !t.fails() {
		code = t.mapping.Codes[outbox.Pending]
		if t.has(RetryCount) {
			order = t.column(RetryCount) + " DESC, " + order
		}
	}
	if t.columns[StatusCode].kindOf() != integer {
		code = "'" + strings.ReplaceAll(code, "'", "''") + "'"
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + t.quoted + " WHERE " + t.column(StatusCode) + " = " + code +
		" ORDER BY " + order + " LIMIT 20"
}
