package ack

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// stuckAfter is how long a table's statuses must have failed: what ends soon is waited for, because rows that are left to the sweep lose their order and time.
const stuckAfter = 10 * time.Second

// Stuck returns the tables whose statuses cannot be written for some time, if they have at least a number of rows in memory, or another number in the journal alone,
// with how many these are. The caller lets others pass them, and leaves further rows of these tables to the sweep, which publishes them when
// the table can be written again. With one table only, and while the database takes no statement at all, there is none.
func (a *Acker) Stuck(fromRows, fromLeft int) (tables map[string]bool, rows, left int) {
	return a.queues.stuck(fromRows, fromLeft)
}

func (w *writeQueues) stuck(fromRows, fromLeft int) (tables map[string]bool, rows, left int) {
	if !w.cfg.Several {
		return nil, 0, 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing[ordinary]+w.failing[locked] == 0 {
		return nil, 0, 0
	}
	for _, q := range w.queues {
		if q.kind == refused || q.failures == 0 || time.Since(q.failing) < stuckAfter || q.kind == ordinary && !server.OfOneTable(q.code) {
			continue
		}
		if q.rows() < fromRows && w.left.tables[q.table] < fromLeft {
			continue
		}
		if tables == nil {
			tables = map[string]bool{}
		}
		if rows += q.rows(); !tables[q.table] {
			left += w.left.tables[q.table]
		}
		tables[q.table] = true
	}
	return tables, rows, left
}
