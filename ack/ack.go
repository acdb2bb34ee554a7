// Package ack records the result of each row: first in the journal, for rows that the broker has accepted, together with the
// checkpoint that this allows; then in the tables, for every completion, in batched status updates.
//
// Guarantees:
// - A sent row counts as settled only in the batch that journals it, so the checkpoint never covers a sent row that is unknown
// after a restart. When that batch fails, Run ends with the error and nothing is journalled any more.
// - A row is removed from the journal and the registry only when its table has the status, so it is not published again
// meanwhile. A database outage delays this and loses nothing.
// - A table that cannot be written delays other tables for at most 300 ms (lasting). A row that its table refuses for its data,
// or that another session has locked, delays no other row; while 5,000 are locked, further ones of their table wait in the
// journal. A sent row that its table refuses is retried until the table accepts it.
//
// Goroutines: the caller of Run (the journal) and the writers, at most two for each table and one each for the table's locked and
// refused rows, only while there is something to write. Two of them write at a time, in addition to those whose attempts fail or
// last. All have ended when Run returns. The journal never waits for a table. DESIGN.md says which rule prevents which race.
package ack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Progress is the pipeline's account of rows and positions. All goroutines of Run call its methods, which do not block.
type Progress interface {
	// Settled counts rows as settled: sent ones right before the Commit that journals them, others when the table has their
	// status or refuses it for good.
	Settled([]outbox.Completion)
	// Checkpoint returns the low-water mark with its generation, and whether it moved since the last call. The generation is passed to the
	// Commit of that position.
	Checkpoint() (at outbox.Position, generation uint64, moved bool)
	// Passed returns sent rows of tables without a status whose transactions are before the last Checkpoint; it is called when
	// that is durable. Their journal entries are no longer needed: Written follows.
	Passed() []outbox.Completion
	// Refused takes sent rows whose status their table refuses: they stay owned and take no room from others.
	Refused([]outbox.Completion)
	// Written releases rows from the registry: the table has their status, or refuses it and the sweep finds them again. It wakes what waits for room, also
	// with an empty list.
	Written([]outbox.Completion)
	// Leave takes rows out of memory that the journal has. They keep their owner.
	Leave([]outbox.Completion)
	// Fetch brings rows back that were left, and returns those of the list that were, in its array.
	Fetch([]outbox.Completion) []outbox.Completion
}

// Journal durably records sent rows that the table does not show as SENT yet.
type Journal interface {
	// Commit removes written, adds sent and moves the checkpoint (nil: does not) in one synced batch. A checkpoint of another
	// generation than the journal's own is ignored: the position was moved since it was read. It is never called concurrently, and
	// keeps neither list. After an error the process must stop: the state is unknown.
	Commit(sent []outbox.Completion, written []outbox.Identity, checkpoint *outbox.Position, generation uint64) error
	// Newest is the number of the record in which the last Commit with sent rows has put them.
	Newest() uint64
	// Sent appends the rows of a record to an empty list; it is called concurrently.
	Sent(record uint64, into []outbox.Completion) ([]outbox.Completion, error)
}

// Tables writes the completions.
type Tables interface {
	// Apply writes a batch of at most 500 rows of one table, sorted by primary key. A nil error: every completion that is not in
	// the result is final in the table (written now or before, or the row is gone); retryable ones and sent ones in it are
	// applied again, the others never. One bad row does not affect the others. An error: the result of the batch is unknown, and
	// it is applied again. Apply is called concurrently; for one table by at most four goroutines, and never with the same row at
	// the same time.
	Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error)
}

// Config has the intervals; zero values take the defaults.
type Config struct {
	CommitEvery  time.Duration   // minimum time between two journal commits; 5 ms
	CommitWithin time.Duration   // longest wait of a few sent rows for others, since the previous commit; 20 ms
	WriteEvery   time.Duration   // longest wait of a completion for its batch to fill; 20 ms
	SentWithin   time.Duration   // the same of sent rows from the log, while fewRows of the table do not wait, nor writeBatch of all tables; 200 ms
	Soon         map[string]bool // tables whose sent rows wait for WriteEvery only, because a relay that takes over finds no other proof
	// Leaves says of which tables sent rows may wait in the journal alone while LeaveFrom of them wait in memory; nil: of none, but for those that a start
	// finds there. It is called under a lock.
	Leaves       func(table string) bool
	LeaveFrom    int            // 2,000
	Several      bool           // there are several tables, so that none may fill the memory, see Stuck
	Pause        time.Duration  // while rows are left, the time once in PauseEvery in which no writer writes; 0: none
	PauseEvery   time.Duration  // 1 s, which is the most
	FlushTimeout time.Duration  // for queued rows after the end of Run's ctx; 10 s
	Retry        outbox.Backoff // between attempts while the database is away; 100 ms doubled to 5 s
	Random       func() float64 // jitter, in [0,1), from any goroutine; math/rand
	// Failed is called with each row that the table shows as FAILED; may be nil. All writers call it, and it must not block.
	Failed func(outbox.Completion)
	// Noted takes rows that were refused, FAILED, or sent in another way than once and from the log; nil: nothing does. It is called as Failed is,
	// and keeps no part of the list.
	Noted func([]outbox.Completion)
}

const (
	writeBatch       = 500 // maximum of rows in one status update; a full batch does not wait
	fewRows          = 100 // rows of a table, below which sent ones wait for SentWithin; larger batches delay an application's commits
	defaultLeaveFrom = 2000
	manyRows         = 64 // sent rows that are journalled without waiting for more: a crash sends about this number again

	// writing is the number of statements at a time, of two tables or of one. With more, each of many tables would be written
	// more often with fewer rows, and the server would not be faster.
	writing = 2

	// lasting is the time after which an attempt does not count in writing any more: it waits for another session's lock, or on a
	// silent connection.
	lasting = 300 * time.Millisecond

	largeSet   = 4 << 10                // size in bytes from which a GTID set is not written with each commit
	largeEvery = 200 * time.Millisecond // minimum interval between such sets

	checkpointEvery = time.Second // longest wait of a moved checkpoint, or of written rows, for a commit

	// applyTimeout ends an attempt on a silent connection; an ordinary batch takes milliseconds.
	applyTimeout = 30 * time.Second
)

// Acker is the stage after the sinks. Add may be called before and while Run runs, from any goroutine. It has more than 25 methods because each step of a
// completion, from the journal to the table, is one, and status, health and metrics ask about each.
type Acker struct {
	cfg      Config
	progress Progress
	journal  Journal
	tables   Tables
	log      *zap.Logger
	metrics  *metrics

	sent   *queue              // acknowledged, not journalled yet
	queues *writeQueues        // for the tables: journalled sent rows and all other completions
	slots  *semaphore.Weighted // of writers

	checkpoints checkpoints
	left        leftReader
	paused      lastPause

	written  writtenRows
	pending  atomic.Int64
	problems problems
}

// New returns an Acker; it does no I/O. Its metrics are registered on reg.
func New(cfg Config, progress Progress, journal Journal, tables Tables, log *zap.Logger, reg prometheus.Registerer) *Acker {
	cfg.setDefaults()
	a := &Acker{
		cfg: cfg, progress: progress, journal: journal, tables: tables, log: log,
		sent: newQueue(), queues: newWriteQueues(cfg), slots: semaphore.NewWeighted(writing), checkpoints: checkpoints{progress: progress},
	}
	a.left = leftReader{journal: journal, progress: progress, queues: a.queues, failed: func() { raise(a.sent.signal) }}
	a.metrics = newMetrics(reg, a.Pending, func() int { return a.queues.count(locked) }, func() int { return a.queues.count(refused) })
	return a
}

func (c *Config) setDefaults() {
	if c.CommitEvery <= 0 {
		c.CommitEvery = 5 * time.Millisecond
	}
	if c.CommitWithin <= 0 {
		c.CommitWithin = 20 * time.Millisecond
	}
	if c.WriteEvery <= 0 {
		c.WriteEvery = 20 * time.Millisecond
	}
	if c.SentWithin <= 0 {
		c.SentWithin = 200 * time.Millisecond
	}
	if c.PauseEvery <= 0 || c.PauseEvery > time.Second {
		c.PauseEvery = time.Second
	}
	if c.LeaveFrom <= 0 {
		c.LeaveFrom = defaultLeaveFrom
	}
	if c.FlushTimeout <= 0 {
		c.FlushTimeout = 10 * time.Second
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Failed == nil {
		c.Failed = func(outbox.Completion) {}
	}
	if c.Noted == nil {
		c.Noted = func([]outbox.Completion) {}
	}
	if c.Retry.Base <= 0 && len(c.Retry.Schedule) == 0 {
		c.Retry = outbox.Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second}
	}
}

// Add queues completions; it never blocks. The caller keeps the slice: Add copies what it needs.
func (a *Acker) Add(list []outbox.Completion) {
	a.pending.Add(int64(len(list)))
	for len(list) > 0 {
		// Runs of one kind are added in one piece: the usual list is one run.
		n, isSent := 1, list[0].Action == outbox.ActionMarkSent
		for n < len(list) && (list[n].Action == outbox.ActionMarkSent) == isSent {
			n++
		}
		if isSent {
			a.sent.add(list[:n])
		} else {
			a.queues.add(list[:n])
		}
		list = list[n:]
	}
}

// Pending is the number of completions that the table has neither written nor refused for the row's data.
func (a *Acker) Pending() int { return int(a.pending.Load()) }

// Problems returns why completions are not written, one line per table and cause; empty when they are. For status. A line that
// names no section of the handbook ends with an error of the database.
func (a *Acker) Problems() []string { return a.queues.problems() }

// Unshown returns up to limit sent rows whose statuses wait for a lock or are refused by their table, and the number of further
// ones: a relay that takes over must not send them.
func (a *Acker) Unshown(limit int) (rows []outbox.Identity, more int) { return a.queues.unshown(limit) }

// Run works until ctx ends, when the caller has drained the pipeline; it then flushes queued rows for at most FlushTimeout and
// returns nil. Any error is a failed journal commit: the caller must stop the process.
func (a *Acker) Run(ctx context.Context) error {
	// The end of ctx ends the journal's loop, not running statements: a cut statement would run twice.
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	a.queues.open(func(q *writeQueue) { a.writeFrom(work, q) })
	for _, table := range a.queues.leftTables() {
		a.left.fetch(work, table)
	}
	if err := a.journalLoop(ctx); err != nil {
		cut()
		a.queues.close()
		return err
	}
	limit := time.AfterFunc(a.cfg.FlushTimeout, cut)
	defer limit.Stop()
	return a.flush(cut)
}

// flush writes queued rows: first the journal, which alone prevents duplicates, then the tables, then the journal again, which
// removes what they have.
func (a *Acker) flush(cut func()) error {
	a.checkpoints.all = true
	err := a.commit()
	if err != nil {
		cut()
	}
	a.queues.drain()
	a.queues.close()
	if err != nil {
		return err
	}
	for range 2 { // the first may move the checkpoint past rows without a status, which the second removes
		if err := a.commit(); err != nil {
			return err
		}
	}
	if left := a.queues.count(ordinary) + a.queues.count(locked) + a.queues.leftRows(); left > 0 {
		a.log.Warn(fmt.Sprintf("%d results not written before the stop; unsent rows go out again, sent ones are in the journal", left), zap.Int("rows", left))
	}
	if left := a.queues.count(refused); left > 0 {
		a.log.Warn(fmt.Sprintf("%d published rows are not shown as SENT, because their table refuses it; they are in the journal", left), zap.Int("rows", left))
	}
	return nil
}

// Left takes rows over that an earlier process left in a record of the journal, and whose owner is the registry. It is called before Run.
func (a *Acker) Left(record uint64, rows []outbox.Completion) {
	a.pending.Add(int64(len(rows)))
	a.queues.leaveFrom(record, rows)
}

// Replay writes the journal of an earlier run to the tables. It is called before Run, while the registry owns the entries and the
// reader has not started. When an attempt fails, Replay leaves the rest to Run: the address may lead to another server, which the
// reader detects. Entries that cannot be written stay in the journal and in the registry.
func (a *Acker) Replay(ctx context.Context, entries []outbox.Completion) error {
	a.pending.Add(int64(len(entries)))
	a.queues.add(entries)
	for ctx.Err() == nil && !a.queues.anyFailed() {
		q, batch := a.queues.takeAny()
		if q == nil {
			return nil
		}
		a.attempt(ctx, q, batch)
		if done := a.written.take(); len(done) > 0 {
			if err := a.journal.Commit(nil, done, nil, 0); err != nil {
				return fmt.Errorf("remove %d entries from the journal: %w; check the state directory and its disk", len(done), err)
			}
		}
	}
	return context.Cause(ctx)
}
