package table

import (
	"fmt"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A table without a status is known from the log alone: its rows may be deleted in the transaction that wrote them. There is no statement
// on it, so a Store leaves it out. What the relay does instead is in docs/decisions/0016.

// LogOnly reports whether the table has no status.
func (t *Table) LogOnly() bool { return t.mapping.logOnly() }

// WithStatus returns those tables that have a status.
func WithStatus(tables []*Table) []*Table {
	return slices.DeleteFunc(slices.Clone(tables), (*Table).LogOnly)
}

// checkLogOnly returns what a table without a status cannot have.
func (m Mapping) checkLogOnly() (faults []string) {
	for role := range columnCount {
		if name := m.Columns[role]; name != "" && (slices.Contains(written, role) || role == MaxRetry) {
			faults = append(faults, fmt.Sprintf("column %s is mapped to %s, but the table has no status: nothing of a row is read or written once the log has shown it", name, role))
		}
	}
	if len(m.Words()) > 0 {
		faults = append(faults, "codes are mapped, but no column to status")
	}
	if m.Grace > 0 {
		faults = append(faults, "grace is set, but the table has no status by which an application could say that it has published a row")
	}
	if m.Ordered {
		faults = append(faults, "ordering: key is set, but the table has no status: rows that wait for an earlier one could not be found again. Set tables[].ordering to none: "+
			"rows go to the broker in the order of the log, and only one that is refused is overtaken")
	}
	return faults
}

// logOnly reports what the lack of a status means.
func (c *check) logOnly() {
	c.add(server.OK, "", "no status: rows are published from the binlog alone, and nothing is read from the table or written to it. No sweep finds what "+
		"the log does not show (a gap may lose rows); what cannot be published holds the reader, and what never can goes to the failed-message log", "")
}
