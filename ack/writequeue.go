package ack

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// writeQueues has the completions that wait for their table: one queue per table, because a table that cannot be written (an
// ALTER holds its lock, a grant is missing) must not delay the others. Each table has two more, for rows that another session has
// locked and for rows that the table refuses, because they must not delay the table's other rows.
//
// A queue has a writer, a goroutine, only while it has rows: idle tables cost nothing. It has more than 25 methods because each is one step under its lock.
type writeQueues struct {
	cfg Config

	mu       sync.Mutex
	queues   map[queueKey]*writeQueue
	waiting  int // rows of all ordinary queues, without the writers' batches
	left     leftRows
	failing  map[queueKind]int // queues whose last attempt failed
	write    func(*writeQueue)
	writers  int
	idle     sync.Cond     // writers became 0
	draining chan struct{} // closed by drain
}

type queueKind uint8

const (
	ordinary queueKind = iota
	locked             // rows that another session had locked at the last attempt
	refused            // sent rows that the table refused to show as SENT at the last attempt
)

type queueKey struct {
	table string
	kind  queueKind
}

// writeQueue is one queue. All fields but the constant ones are guarded by writeQueues.mu.
type writeQueue struct {
	queueKey               // constant
	wake     chan struct{} // constant; holds a token when due may be earlier than it was

	items    fifo
	batch    []outbox.Completion // the batch of the writer: its array is reused for each batch
	since    time.Time           // when the oldest item was added
	mixed    bool                // not all items are rows from the log that were sent
	taken    int                 // rows of the writer's batch
	quick    bool                // two concurrent statements take at most lockTime, by the last full batch
	writing  bool                // a writer exists
	failures int                 // attempts since the last success
	failing  time.Time           // when the first of them ended
	reason   string              // of the last failure
	code     uint16              // the server's error number; 0 when there is none
	retryAt  time.Time           // no attempt before
	refusals                     // state of the refused rows
}

func (q *writeQueue) rows() int { return q.items.len() + q.taken }

func newWriteQueues(cfg Config) *writeQueues {
	w := &writeQueues{cfg: cfg, queues: map[queueKey]*writeQueue{}, failing: map[queueKind]int{}, left: leftRows{tables: map[string]int{}, own: map[string][]uint64{}}, draining: make(chan struct{})}
	w.idle.L = &w.mu
	return w
}

// add copies completions into the queues of their tables.
func (w *writeQueues) add(list []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Table == list[0].Table {
			n++
		}
		w.put(w.queue(queueKey{table: list[0].Table}), list[:n])
		list = list[n:]
	}
}

// queue returns a queue and creates it if needed. Callers hold mu.
func (w *writeQueues) queue(key queueKey) *writeQueue {
	q := w.queues[key]
	if q == nil {
		q = &writeQueue{queueKey: key, wake: make(chan struct{}, 1)}
		w.queues[key] = q
	}
	return q
}

// put appends to a queue and starts its writer if there is none. Callers hold mu.
func (w *writeQueues) put(q *writeQueue, list []outbox.Completion) {
	if q.items.len() == 0 {
		q.since, q.mixed = time.Now(), false
	}
	q.items.add(list)
	if !q.mixed && slices.ContainsFunc(list, isUrgent) {
		q.mixed = true
		raise(q.wake)
	}
	if n := q.items.len(); n >= fewRows && n-len(list) < fewRows || n >= writeBatch {
		raise(q.wake)
	}
	w.queued(q, len(list))
	w.startWriter(q)
}

// isUrgent reports whether a completion does not wait for SentWithin: a sweep and timers have room for few rows that are not written, and an attempt or a
// failure is not in the journal.
func isUrgent(c outbox.Completion) bool {
	return c.Action != outbox.ActionMarkSent || c.Path != outbox.PathBinlog
}

// queued counts items that were added or, with n below 0, taken. From writeBatch rows on, of all tables, no queue waits long. Callers hold mu.
func (w *writeQueues) queued(q *writeQueue, n int) {
	if q.kind != ordinary {
		return
	}
	few := w.waiting < writeBatch
	if w.waiting += n; few && w.waiting >= writeBatch {
		for _, q := range w.queues {
			raise(q.wake)
		}
	}
}

func (w *writeQueues) startWriter(q *writeQueue) {
	if w.write == nil || q.writing || q.items.len() == 0 {
		return
	}
	q.writing = true
	w.writers++
	go w.write(q)
}

// open starts writers: each runs write. It must call take until take reports false.
func (w *writeQueues) open(write func(*writeQueue)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write = write
	for _, q := range w.queues {
		w.startWriter(q)
	}
}

// drain makes the writers write the queued rows without waiting for full batches.
func (w *writeQueues) drain() { close(w.draining) }

// close returns when no writer runs, and none can start.
func (w *writeQueues) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.writers > 0 {
		w.idle.Wait()
	}
	w.write = nil
}

// due returns when a queue's writer must write its next batch: at once when writeBatch rows are queued, else when the oldest has
// waited for WriteEvery or, where that is enough, SentWithin, but never before the next attempt is due. ok is false when the writer must end,
// because the queue is empty or cut is set.
func (w *writeQueues) due(q *writeQueue, cut error) (wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.items.len() == 0 || cut != nil || q.tried {
		arrays.giveBack(q.batch)
		q.writing, q.batch = false, nil
		if w.writers--; w.writers == 0 {
			w.idle.Broadcast()
		}
		return 0, false
	}
	if q.kind == refused && w.drains() {
		q.tried = true // a last time; they are in the journal
		return 0, true
	}
	due := q.since
	switch {
	case q.items.len() >= writeBatch || w.drains():
	case q.kind == ordinary && !q.mixed && w.left.rows == 0 && q.items.len() < fewRows && w.waiting < writeBatch && !w.cfg.Soon[q.table]:
		due = due.Add(w.cfg.SentWithin)
	default:
		due = due.Add(w.cfg.WriteEvery)
	}
	if due.Before(q.retryAt) {
		due = q.retryAt
	}
	return time.Until(due), true
}

// takesSlots reports whether a queue's writer waits for the semaphore: not when the last attempt failed, because the next one may
// last, and others would wait for it.
func (w *writeQueues) takesSlots(q *writeQueue) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return q.failures == 0 && q.kind == ordinary
}

// wide reports whether a queue has enough rows for two statements, and whether they are quick.
func (w *writeQueues) wide(q *writeQueue) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return q.quick && q.items.len() >= 2*writeBatch
}

// take returns a batch for this number of statements, which the queue's writer owns until failed or worked.
func (w *writeQueues) take(q *writeQueue, statements int) []outbox.Completion {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takeBatch(q, statements*writeBatch)
}

// lockTime is how long concurrent statements may take and hold the locks of their rows.
const lockTime = 20 * time.Millisecond

// took evaluates the time of a full batch. Where the server has no free core, two concurrent statements take twice as long and
// write no more: then they run one after the other.
func (w *writeQueues) took(q *writeQueue, rows int, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case rows == 2*writeBatch:
		q.quick = d <= lockTime
	case rows == writeBatch:
		q.quick = 2*d <= lockTime
	}
}

func (w *writeQueues) takeBatch(q *writeQueue, most int) []outbox.Completion {
	if q.batch == nil {
		q.batch = arrays.take()
	}
	q.batch = q.items.take(most, q.batch[:0])
	q.taken = len(q.batch)
	w.queued(q, -q.taken)
	return q.batch
}

func (w *writeQueues) drains() bool {
	select {
	case <-w.draining:
		return true
	default:
		return false
	}
}

// takeAny is take before writers run: a batch of any queue, in the order of the tables.
func (w *writeQueues) takeAny() (q *writeQueue, batch []outbox.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, candidate := range w.queues {
		if candidate.kind != refused && candidate.items.len() > 0 && (q == nil || cmp.Less(candidate.table, q.table)) {
			q = candidate
		}
	}
	if q == nil {
		return nil, nil
	}
	return q, w.takeBatch(q, writeBatch)
}

// failed returns a batch to the head of its queue. retry gives the wait after a number of earlier consecutive failures. It
// reports whether this is the first queue of its kind to fail.
func (w *writeQueues) failed(q *writeQueue, batch []outbox.Completion, cause error, retry func(failures int) time.Duration) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.taken = 0
	if q.items.len() == 0 {
		q.since = time.Now()
	}
	q.items.putBack(batch)
	w.queued(q, len(batch))
	q.retryAt, q.reason, q.code = time.Now().Add(retry(q.failures)), "", 0
	if cause != nil {
		q.reason, q.code = cause.Error(), server.Code(cause)
	}
	return w.countFailure(q)
}

func (w *writeQueues) countFailure(q *writeQueue) (first bool) {
	q.failures++
	if q.failures > 1 {
		return false
	}
	q.failing = time.Now()
	w.failing[q.kind]++
	return w.failing[q.kind] == 1
}

// postpone puts rows of a table that another session has locked into the queue of such rows. Rows that are queued there keep the
// time of their next attempt. It reports whether this is the first table with such rows.
func (w *writeQueues) postpone(table string, rows []outbox.Completion, retry func(failures int) time.Duration) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue(queueKey{table: table, kind: locked})
	if q.failures == 0 {
		q.retryAt = time.Now().Add(retry(0))
		first = w.countFailure(q)
	}
	w.put(q, rows)
	return first
}

// worked resets the failures of a queue. It reports whether this was the last queue of its kind that failed.
func (w *writeQueues) worked(q *writeQueue) (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.taken = 0
	if q.failures == 0 {
		return false
	}
	q.retryAt = time.Time{}
	if q.kind == locked && q.items.len() > 0 { // these rows are only known to be locked
		q.failures = 1
		return false
	}
	q.failures = 0
	w.failing[q.kind]--
	return w.failing[q.kind] == 0
}

// count returns the number of rows in the queues of a kind.
func (w *writeQueues) count(kind queueKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, q := range w.queues {
		if q.kind == kind {
			n += q.rows()
		}
	}
	return n
}

// settling is Acker.Settling.
func (w *writeQueues) settling(table string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[queueKey{table: table}]; q != nil && !q.mixed && q.failures == 0 {
		return q.rows() + w.left.tables[table]
	}
	return 0
}

// problems returns for each table why statuses are not written, in the order of the tables.
func (w *writeQueues) problems() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		switch {
		case q.failures == 0 || q.kind == refused: // which Snapshot shows
		case q.kind == locked && q.reason != "":
			list = append(list, fmt.Sprintf("%s: the statuses of %d row(s) that were locked cannot be written: %s; what to do: docs/operations/rows.md, Rows behind another session's lock", q.table, q.rows(), q.reason))
		case q.kind == locked:
			list = append(list, fmt.Sprintf("%s: the statuses of %d row(s) wait for locks that another session holds; what to do: docs/operations/rows.md, Rows behind another session's lock", q.table, q.rows()))
		default:
			list = append(list, fmt.Sprintf("%s: the statuses of %d row(s) cannot be written: %s", q.table, q.rows(), q.reason))
		}
	}
	slices.Sort(list)
	return list
}

// anyFailed reports whether the last attempt of some queue failed.
func (w *writeQueues) anyFailed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failing[ordinary]+w.failing[locked] > 0
}
