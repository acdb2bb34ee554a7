// Package recovery looks rows up that may have been handled before, and says when the sweep may take what the log has not shown.
//
// The recovery window is the range of the log that may hold rows handled before: from the checkpoint to the server's position at
// connect, and up to wherever a sweep has published without waiting for the reader. Its rows wait, owned, until a page is full or
// the end is reached; then the table is asked for their state by primary key.
//
// Guarantee: a row of the window is published only if the table shows it as PENDING and due, with the slack that the fast path has; later transactions wait for it, for a
// few seconds at most if they may be of other tables and its own cannot be read: then the sweep has it. The
// sweep may continue only when every transaction up to the position that it names was offered, or after the window was raised to
// it.
//
// Run is its one goroutine, for the window of a log without new events; it holds the log lock for one look-up at most. Reader and sweep
// call on their own goroutines. The log lock comes before every mutex.
package recovery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

const (
	page     = 500                   // rows of one table that are looked up in one query
	maxPage  = 20 * page             // rows of all tables that wait for their look-ups: with many tables each query would be for a few rows
	tick     = 50 * time.Millisecond // while the window is open
	idleTick = time.Second           // while it is not
)

// retryPauses are between attempts to look rows up.
var retryPauses = outbox.Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second}

// Checker reads the state of rows by primary key; rows that do not exist are missing from the answer.
type Checker interface {
	States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error)
	// Untouched reports whether each of these rows is in the table as PENDING and due and was never refused. It costs much less than the
	// list.
	Untouched(ctx context.Context, ids []outbox.Identity) (bool, error)
}

// Recovery is the window and its rows. Make it with New. It has more than 25 methods and 15 fields because the reader, the sweep and the start each ask it about
// the same window, under two locks.
type Recovery struct {
	tracker  *tracker.Tracker
	dispatch *dispatch.Dispatch
	sweeps   tracker.Sweeps
	checker  Checker
	earlier  Earlier // nil: nothing is known
	maxBytes int     // of the rows that wait
	random   func() float64
	log      *zap.Logger
	raised   prometheus.Counter
	paused   atomic.Bool
	asking   atomic.Bool // rows of the log wait for the answer of earlier

	// A goroutine holds the log lock while it passes on rows of the log, so that the order of commits is kept. The lock guards unseen.
	logLock *semaphore.Weighted
	unseen

	mu    sync.Mutex
	end   outbox.Position // of the window
	stall stall
}

// New makes a Recovery without a window. It does no I/O. earlier may be nil.
func New(t *tracker.Tracker, d *dispatch.Dispatch, sweeps tracker.Sweeps, checker Checker, earlier Earlier, log *zap.Logger, reg prometheus.Registerer) *Recovery {
	return &Recovery{
		tracker: t, dispatch: d, sweeps: sweeps, checker: checker, earlier: earlier, maxBytes: d.MaxBytes(), random: d.Random, log: log, logLock: semaphore.NewWeighted(1),
		unseen: unseen{ofTable: map[string]int{}, answers: newAnswers(), mute: map[string]mute{}},
		raised: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "canal_outbox_sweep_without_reader_total", Help: "Pages taken though the binlog reader was down or stuck.",
		}),
	}
}

// Lock takes the log lock. Its wait ends with the context, because the holder may be waiting for the broker.
func (r *Recovery) Lock(ctx context.Context) error { return r.logLock.Acquire(ctx, 1) }

// Unlock gives the log lock back.
func (r *Recovery) Unlock() { r.logLock.Release(1) }

// Open begins a window that ends at a position. It never makes a window shorter: a sweep may have raised it beyond that position
// after the position was read, and its rows must be looked up. Callers hold the log lock.
func (r *Recovery) Open(end outbox.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end.Compare(end) < 0 {
		r.end = end
	}
}

// Covers reports whether a transaction that ends at a position lies in the present window. It must be called after the rows are
// owned: a sweep that has raised the window before took its rows first, one that raises it later finds them owned.
func (r *Recovery) Covers(end outbox.Position) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return end.Compare(r.end) <= 0
}

// Passed reports whether the window ends at or before a position.
func (r *Recovery) Passed(at outbox.Position) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end.Compare(at) <= 0
}

// Raise extends the window to a position: rows that the sweep is about to take are looked up when the log shows them.
func (r *Recovery) Raise(to outbox.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raise(to)
}

// raise is Raise. Callers hold mu.
func (r *Recovery) raise(to outbox.Position) {
	if r.end.Compare(to) < 0 {
		r.end = to
	}
	r.tracker.Activity.Disturb() // the log shows later what the sweep takes now
}

// Reset sets the position elsewhere: the window is dropped, its rows are left to the sweep, and the tables that keep the order of their keys are
// read again. An end of the log that was read before raises nothing afterwards: the new log may never reach it. Callers hold the log lock.
func (r *Recovery) Reset(flavor outbox.Flavor, at outbox.Position) (generation uint64, err error) {
	r.Clear()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end, r.stall = outbox.Position{}, stall{}
	r.dispatch.Unread()
	return r.tracker.Reset(flavor, at)
}

// Clear drops the window and leaves its rows to the sweep. Callers hold the log lock.
func (r *Recovery) Clear() {
	for _, e := range r.waiting {
		r.dispatch.Leave(e, outbox.CauseGap)
	}
	r.waiting, r.waitingB = nil, 0
	clear(r.ofTable)
	r.asking.Store(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = outbox.Position{}
}

// Check looks the waiting rows up and publishes those that are still to be. It tries until the database answers: meanwhile the reader
// waits, which is right, for nothing behind may overtake. One of several tables is waited for only shortly, see sort. Callers hold the log lock.
func (r *Recovery) Check(ctx context.Context) error {
	if len(r.waiting) == 0 {
		return nil
	}
	for failures := 0; ; failures++ {
		err := r.sort(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(r.failed(failures, err)):
		}
	}
	for len(r.waiting) > 0 {
		n, err := r.dispatch.Publish(ctx, r.waiting)
		if err != nil {
			return err
		}
		r.published(n)
	}
	return nil
}

func (r *Recovery) published(n int) {
	r.waiting = r.waiting[n:]
	if len(r.waiting) == 0 {
		r.waiting, r.waitingB = nil, 0
	}
}

// failed logs a failed attempt, but one that waits for the broker, and returns the pause before the next. Callers hold the log lock.
func (r *Recovery) failed(failures int, err error) time.Duration {
	wait := retryPauses.Delay(failures, r.random())
	if errors.Is(err, outbox.ErrBrokerAway) {
		return wait // Earlier logs it
	}
	r.log.Warn("cannot look up rows of the recovery window, trying again", zap.Int("rows", len(r.waiting)), zap.Duration("in", wait), zap.Error(err))
	return wait
}

// Run completes the look-up of rows that wait while the log shows nothing more, until the context ends. Unlike the reader it
// never waits for room with the log lock, because Reset and a stop need it.
func (r *Recovery) Run(ctx context.Context) {
	timer := time.NewTimer(idleTick)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait, failed := r.checkQuiet(ctx, failures)
		if failures++; !failed {
			failures = 0
		}
		timer.Reset(wait)
	}
}

// checkQuiet makes one attempt unless the reader is at work, and returns when to look again. It logs a failure, but that of ctx.
func (r *Recovery) checkQuiet(ctx context.Context, failures int) (wait time.Duration, failed bool) {
	wait = idleTick
	if !r.Passed(r.tracker.Offered()) {
		wait = tick
	}
	if !r.logLock.TryAcquire(1) {
		return wait, false // the reader does it
	}
	defer r.Unlock()
	if len(r.waiting) == 0 {
		return wait, false
	}
	err := r.sort(ctx)
	switch {
	case ctx.Err() != nil:
		return 0, true
	case err != nil:
		return r.failed(failures, err), true
	}
	for len(r.waiting) > 0 {
		n := r.dispatch.TryPublish(r.waiting)
		if n == 0 {
			break
		}
		r.published(n)
	}
	return tick, false
}
