package ack

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// leftRows are sent rows whose statuses wait in the journal alone. A drain sends rows faster than a table takes their statuses, and a row in memory
// takes some hundred bytes. Guarded by writeQueues.mu.
//
// While rows of a table are left, one of its writers runs: they are left only behind others of their table, and a writer fetches them before it ends. A table
// that takes no statuses keeps only its own rows from being fetched.
type leftRows struct {
	records []uint64            // of the journal, oldest first, that were not read since
	own     map[string][]uint64 // by table, oldest first: records that were read while the table was full; they are older than those in records
	list    []outbox.Completion // those that are just being left, for reuse
	rows    int                 // in these records, and in the one that is being fetched
	tables  map[string]int      // the same by table
}

// leaveAll is the number of rows of all tables from which each table that has fewRows waiting leaves further ones, and fetches none.
const leaveAll = 5000

// lockedMost is the number of locked rows of a table from which further ones are left and none is fetched: the next ones may be locked as well, and the memory is to
// have a bound. A lock ends. Refused rows may be refused for ever, so they keep no other row in the journal.
const lockedMost = 5000

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

// leaves reports whether further rows of a table are left: a writer of the table must run. Callers hold mu.
func (w *writeQueues) leaves(table string) bool {
	if !w.cfg.Leaves(table) {
		return false
	}
	q := w.queues[queueKey{table: table}]
	few := q != nil && q.writing && w.left.rows > 0 && q.rows() >= min(fewRows, w.cfg.LeaveFrom)
	return few || w.full(table)
}

// isLeft reports whether the journal holds enough of a row: not of one that is sent again, or that the log did not bring.
func isLeft(c outbox.Completion) bool { return !isUrgent(c) && c.Sends <= 1 && !c.TakenOver }

// leaveFrom adds a record that an earlier process wrote.
func (w *writeQueues) leaveFrom(record uint64, rows []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left.add(record, rows)
}

// full reports whether a table has enough rows in memory, and so a writer: further ones are left and none is fetched. Callers hold mu.
func (w *writeQueues) full(table string) bool {
	if q := w.queues[queueKey{table, locked}]; q != nil && q.writing && q.rows() >= lockedMost {
		return true
	}
	q := w.queues[queueKey{table: table}]
	return q != nil && q.writing && (q.rows() >= w.cfg.LeaveFrom || q.rows() >= min(fewRows, w.cfg.LeaveFrom) && w.waiting >= leaveAll)
}

// leftTables are the tables of which rows are left.
func (w *writeQueues) leftTables() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.left.tables))
}

// nextLeft takes the oldest record out that may have left rows of a table, if the table has few in memory. alone: of its rows only those of the table are wanted,
// because others were fetched when it was read first, or have it in their list.
func (w *writeQueues) nextLeft(table string) (record uint64, alone, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[queueKey{table: table}]
	if w.left.tables[table] == 0 || w.full(table) || q != nil && q.items.len() >= min(writeBatch, w.cfg.LeaveFrom) {
		return 0, false, false
	}
	if list := w.left.own[table]; len(list) > 0 {
		if w.left.own[table] = list[1:]; len(list) == 1 {
			delete(w.left.own, table)
		}
		return list[0], true, true
	}
	if len(w.left.records) == 0 {
		return 0, false, false
	}
	record = w.left.records[0]
	if w.left.records = w.left.records[1:]; len(w.left.records) == 0 {
		w.left.records = nil
	}
	return record, false, true
}

// fetchable takes the rows out of a record's that are not to be fetched: those of other tables if it is read for one alone, else those of full tables, which read
// it later.
func (w *writeQueues) fetchable(record uint64, list []outbox.Completion, table string, alone bool) []outbox.Completion {
	if alone {
		return slices.DeleteFunc(list, func(c outbox.Completion) bool { return c.Table != table })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	full := map[string]bool{}
	return slices.DeleteFunc(list, func(c outbox.Completion) bool {
		is, known := full[c.Table]
		if !known {
			is = w.left.tables[c.Table] > 0 && w.full(c.Table)
			if full[c.Table] = is; is {
				w.left.own[c.Table] = append(w.left.own[c.Table], record)
			}
		}
		return is
	})
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

// fetch reads the oldest left rows of a table while it has few in memory, with those of other tables that are not full: its writers call it.
func (l *leftReader) fetch(work context.Context, table string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for work.Err() == nil {
		record, alone, ok := l.queues.nextLeft(table)
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
		list = l.progress.Fetch(l.queues.fetchable(record, list, table, alone))
		l.queues.fetched(list)
		l.queues.add(list)
		clear(list)
		l.brought = list[:0]
	}
}
