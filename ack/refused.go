package ack

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A table refuses a status for the data of one row: a trigger, a constraint, a column that is too narrow. A row that was sent
// stays in the journal and in the registry, so that it is not sent again, and its status is retried until the table accepts it. A
// row that was not sent is released: the sweep finds it.

// slow is the pause between attempts at rows that their table refuses. An attempt finds the refused rows of a batch by halving
// it, with about two statements per row. So it has one batch, and the next one follows at once only if the table accepted a row.
var slow = outbox.Backoff{Base: 10 * time.Second, Max: time.Minute}

// reportEvery is the minimum time between two log lines about the refused rows of one table.
const reportEvery = time.Minute

// refusals is the state of a queue of refused rows.
type refusals struct {
	newest   *Problem  // nil while the queue is empty
	tried    bool      // a last time, at the stop
	reported time.Time // time of the last log line
	named    int       // the number of rows in that line
}

// refuse puts rows that the table refuses at the end of the queue of such rows. again: they come from that queue. progress: the
// attempt has written other rows of the queue. It returns the number of rows to report; 0 when there is nothing new.
func (w *writeQueues) refuse(table string, rows []outbox.WriteError, again, progress bool, random func() float64) (report int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue(queueKey{table: table, kind: refused})
	if again {
		q.taken = 0
	}
	if len(rows) > 0 {
		newest := rows[len(rows)-1]
		q.newest = &Problem{Identity: newest.Identity, Reason: newest.Reason, At: time.Now()}
	}
	switch {
	case again && progress:
		q.failures, q.retryAt, q.tried = 0, time.Time{}, false
	case again || q.failures == 0:
		q.retryAt = time.Now().Add(slow.Delay(q.failures, random()))
		q.failures++
	}
	for i := range rows {
		w.put(q, []outbox.Completion{rows[i].Completion})
	}
	n := q.rows()
	if n == 0 {
		q.newest, q.named, q.failures, q.retryAt = nil, 0, 0, time.Time{}
	}
	if n == q.named || time.Since(q.reported) < reportEvery {
		return 0
	}
	q.reported, q.named = time.Now(), n
	return n
}

// newestRefused returns the row that a table has refused last and still refuses; nil when there is none.
func (w *writeQueues) newestRefused() (newest *Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		if q.kind == refused && q.newest != nil && (newest == nil || q.newest.At.After(newest.At)) {
			newest = q.newest
		}
	}
	return newest
}

// unshown returns up to limit sent rows whose statuses wait for a lock or are refused, and at a stop all that are not written, in
// the order of the tables, and the number of further ones. Rows that are left in the journal are among these.
func (w *writeQueues) unshown(limit int) (list []outbox.Identity, more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.drains() {
		more = w.left.rows
	}
	byTable := func(a, b queueKey) int {
		return cmp.Or(strings.Compare(a.table, b.table), cmp.Compare(a.kind, b.kind))
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.queues), byTable) {
		q := w.queues[key]
		if key.kind == ordinary && !w.drains() {
			continue // will be written shortly
		}
		for _, part := range [][]outbox.Completion{q.batch[:q.taken], q.items.waiting()} {
			for i := range part {
				switch {
				case part[i].Action != outbox.ActionMarkSent:
				case len(list) == limit:
					more++
				default:
					list = append(list, part[i].Identity)
				}
			}
		}
	}
	return list, more
}

// refusedRows moves sent rows that the table refuses to their queue; it counts and reports them once.
func (a *Acker) refusedRows(q *writeQueue, rows []outbox.WriteError, progress bool) {
	again := q.kind == refused
	if len(rows) == 0 && !again {
		return
	}
	if !again {
		a.metrics.unwritable.WithLabelValues(outbox.ActionMarkSent.String()).Add(float64(len(rows)))
		a.pending.Add(-int64(len(rows)))
		list := make([]outbox.Completion, len(rows))
		for i := range rows {
			list[i] = rows[i].Completion
		}
		a.progress.Refused(list)
	}
	n := a.queues.refuse(q.table, rows, again, progress, a.cfg.Random)
	if n == 0 || len(rows) == 0 {
		return
	}
	a.log.Error("the table refuses to show published messages as SENT; they are not published again, and the status is tried again "+
		"every minute: fix the table or the rows", append(rowFields(rows[0].Completion), zap.Int("rows", n), zap.String("reason", rows[0].Reason))...)
}

// unsentRefused counts refused statuses of rows that were not sent, for one log line per table and minute.
type unsentRefused struct {
	reported time.Time
	rows     int // since that line
}

// reportUnsent reports rows that were not sent and whose status the table refuses. They are released, and the sweep tries them
// again.
func (a *Acker) reportUnsent(rows []outbox.WriteError) {
	if len(rows) == 0 {
		return
	}
	for _, u := range rows {
		a.metrics.unwritable.WithLabelValues(u.Action.String()).Inc()
	}
	n := a.problems.countUnsent(rows[0].Table, len(rows))
	if n == 0 {
		return
	}
	a.log.Error("the table refuses the statuses of messages that were not published; the rows stay as they are, and the sweep tries them "+
		"again: fix the table or the rows", append(rowFields(rows[0].Completion), zap.Int("rows", n), zap.Stringer("action", rows[0].Action),
		zap.String("reason", rows[0].Reason))...)
}
