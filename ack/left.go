package ack

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// leftRows are sent rows whose statuses wait in the journal alone. A drain sends rows faster than a table takes their statuses, and a row in memory
// takes some hundred bytes. Guarded by writeQueues.mu.
//
// While rows are left a writer runs: rows are left only behind others of their table, and a writer that has few fetches left ones before it ends.
type leftRows struct {
	records []uint64            // of the journal, oldest first
	list    []outbox.Completion // those that are just being left, for reuse
	rows    int                 // in these records, and in the one that is being fetched
	tables  map[string]int      // the same by table
}

// leaveAll is the number of rows of all tables from which rows are left of each table that has fewRows waiting, and none is fetched.
const leaveAll = 5000

// LeftBehind is the number of rows in memory from which a start leaves those of the journal there, whichever tables may leave rows now: an earlier process may
// have left a million, with another configuration.
func (c *Config) LeftBehind() int { return cmp.Or(c.LeaveFrom, defaultLeaveFrom) }

// leave takes those of journalled rows out of the list that wait in their record alone, and passes them to out. The others keep their places.
func (w *writeQueues) leave(record uint64, list []outbox.Completion, out func([]outbox.Completion)) (rest []outbox.Completion) {
	if w.cfg.Leaves == nil {
		return list
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.left.list[:0]
	table, leaves := "", false
	rest = slices.DeleteFunc(list, func(c outbox.Completion) bool {
		if c.Table != table {
			table, leaves = c.Table, w.leaves(c.Table)
		}
		if leaves && isLeft(c) {
			left = append(left, c)
		}
		return leaves && isLeft(c)
	})
	if len(left) > 0 {
		w.left.add(record, left)
		out(left) // under mu: a writer that fetches the record finds its rows
		clear(left)
	}
	w.left.list = left
	return rest
}

func (l *leftRows) add(record uint64, rows []outbox.Completion) {
	l.records, l.rows = append(l.records, record), l.rows+len(rows)
	for i := range rows {
		l.tables[rows[i].Table]++
	}
}

// leaves reports whether further rows of a table are left. Callers hold mu.
func (w *writeQueues) leaves(table string) bool {
	q := w.queues[queueKey{table: table}]
	if q == nil || !q.writing || !w.cfg.Leaves(table) {
		return false
	}
	rows := q.rows()
	return rows >= w.cfg.LeaveFrom || rows >= min(fewRows, w.cfg.LeaveFrom) && (w.left.rows > 0 || w.waiting >= leaveAll)
}

// isLeft reports whether the journal knows enough of a row: not of one that is sent again, or that the log did not bring.
func isLeft(c outbox.Completion) bool { return !isUrgent(c) && c.Sends <= 1 && !c.TakenOver }

// leaveFrom adds a record that an earlier process wrote.
func (w *writeQueues) leaveFrom(record uint64, rows []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left.add(record, rows)
}

// nextLeft takes the oldest record out, if a queue has few rows, or there is none, and there is room for more.
func (w *writeQueues) nextLeft(q *writeQueue) (record uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.left.records) == 0 || w.waiting >= leaveAll || q != nil && q.items.len() >= min(writeBatch, w.cfg.LeaveFrom) {
		return 0, false
	}
	record = w.left.records[0]
	if w.left.records = w.left.records[1:]; len(w.left.records) == 0 {
		w.left.records = nil
	}
	return record, true
}

// fetched counts rows out that are in memory again.
func (w *writeQueues) fetched(list []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left.rows -= len(list)
	for i := range list {
		table := list[i].Table
		if w.left.tables[table]--; w.left.tables[table] <= 0 {
			delete(w.left.tables, table)
		}
	}
}

// leftRows is the number of rows that are left.
func (w *writeQueues) leftRows() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left.rows
}

// leftReader brings left rows back. One writer reads at a time, and the others wait for what it brings.
type leftReader struct {
	journal  Journal
	progress Progress
	queues   *writeQueues
	failed   func()                // is called when broken is set
	broken   atomic.Pointer[error] // the journal cannot be read: Run ends with this

	mu      sync.Mutex
	brought []outbox.Completion // for reuse
}

// fetch reads the oldest left rows while a queue has few: its writer calls it.
func (l *leftReader) fetch(work context.Context, q *writeQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for work.Err() == nil {
		record, ok := l.queues.nextLeft(q)
		if !ok {
			return
		}
		list, err := l.journal.Sent(record, l.brought[:0])
		if err != nil {
			err = fmt.Errorf("read sent rows from the journal: %w; check the state directory and its disk, then start again", err)
			l.broken.CompareAndSwap(nil, &err)
			l.failed()
			return
		}
		list = l.progress.Fetch(list)
		l.queues.fetched(list)
		l.queues.add(list)
		clear(list)
		l.brought = list[:0]
	}
}
