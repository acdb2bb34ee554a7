package query

import (
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// selectFailed is the statement with which a person reads the newest FAILED rows. It names the columns that identify a row and
// the reason of the failure, and no body. Where no row can be FAILED it shows the PENDING rows that were refused most often.
func (t *mapped) selectFailed() string {
	var columns []string
	for _, role := range []table.Column{table.ID, table.MessageID, table.BizType, table.Key, table.Topic, table.RetryCount, table.FailReason} {
		if t.Has(role) {
			columns = append(columns, t.Column(role))
		}
	}
	code, order := t.Mapping().Codes[outbox.Failed], t.Column(table.ID)+" DESC"
	if !t.Fails() {
		code = t.Mapping().Codes[outbox.Pending]
		if t.Has(table.RetryCount) {
			order = t.Column(table.RetryCount) + " DESC, " + order
		}
	}
	if t.Type(table.StatusCode).Kind() != table.KindInteger {
		code = "'" + strings.ReplaceAll(code, "'", "''") + "'"
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + t.Quoted() + " WHERE " + t.Column(table.StatusCode) + " = " + code +
		" ORDER BY " + order + " LIMIT 20"
}
