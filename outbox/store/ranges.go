package store

import (
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// nextStatus is the beginning of the first range of the next status.
func nextStatus(c table.Cursor, list []table.Range) table.Cursor {
	at := c.Range
	for at < len(list) && list[at].Status == list[c.Range].Status {
		at++
	}
	return table.Cursor{AtEnd: at == len(list), Range: at}
}

// final reports whether no row of the range is ever due.
func final(in table.Range) bool { return in.Status == outbox.Sent || in.Status == outbox.Failed }

// ranges are what a query goes through, in this order. Where the strategy is byAttempts there is one of each for every number
// of attempts.
func (t *mapped) ranges(q pageQuery) (list []table.Range) {
	for _, status := range []outbox.Status{outbox.Pending, outbox.Sending} {
		if status == outbox.Sending && !t.Claims() {
			continue
		}
		list = append(list, t.rangesOf(status, q)...)
	}
	return list
}

// rangesOf are those of one status.
func (t *mapped) rangesOf(status outbox.Status, q pageQuery) (list []table.Range) {
	var parts []table.Part
	switch {
	case t.Strategy() == table.ByDue || t.Strategy() == table.ByAttempts:
		parts = []table.Part{table.Untimed, table.Timed}
	case t.Strategy() == table.ByCreated && status == outbox.Pending && q.Threshold > 0 && !t.Has(table.NextRetryTime):
		// A range leaves the young rows out. Rows with a due time are wanted however young they are.
		parts = []table.Part{table.Untimed, table.Aged, table.Ahead}
	case t.Strategy() == table.ByCreated:
		parts = []table.Part{table.Untimed, table.Timed}
	default:
		parts = []table.Part{table.Whole}
	}
	for _, part := range parts {
		list = append(list, table.Range{Status: status, Part: part})
	}
	return list
}
