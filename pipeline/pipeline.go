// Package pipeline is the flow between both sources of rows and the sink. It puts three parts together, each to be read alone: tracker
// (which rows are ours, how far the log is settled), dispatch (the way to the sink) and recovery (rows that may have been handled
// before). Rows come from the binlog reader (Offer) and from the sweep (Publish), go to one sink, and leave as completions for ack.
// DESIGN.md explains the invariants, and the races that the rules prevent.
//
// Guarantee: that of the parts, and that transactions are handed to the sink in commit order.
//
// Run owns the goroutines of dispatch and that of recovery, and waits for them. Locks: recovery's lock, then recovery's or
// dispatch's mutex, then the tracker's. None is held while ack or the sink is called; recovery's lock is held while the database is asked,
// which is what makes later transactions wait for the rows of the recovery window.
package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/recovery"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Config bounds the flow.
type Config = dispatch.Config

// Pipeline implements what the reader, the sweep and the relay expect of the flow: it has many methods because it passes each call to one of the four parts. Make
// it with New.
type Pipeline struct {
	tracker  *tracker.Tracker
	dispatch *dispatch.Dispatch
	recovery *recovery.Recovery
	sweeps   tracker.Sweeps
	longest  time.Duration // of the delays that the broker is given
	missed   prometheus.Counter

	entries []*tracker.Entry // of the rows that are taken now; guarded by recovery's lock
	inside  bool             // the transaction that was offered last is not complete; the reader's alone

	mu    sync.Mutex
	quiet quiet
}

// New puts the parts together. It does no I/O.
func New(t *tracker.Tracker, d *dispatch.Dispatch, r *recovery.Recovery, sweeps tracker.Sweeps, reg prometheus.Registerer) *Pipeline {
	return &Pipeline{
		tracker: t, dispatch: d, recovery: r, sweeps: sweeps, longest: d.LongestDelay(), quiet: newQuiet(t.Activity.Count()),
		missed: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "canal_outbox_missed_total",
			Help: "Rows without a due time that a sweep published though the log never showed them as inserted (REPLACE or upsert of an " +
				"existing key, sql_log_bin=0, a status set by hand). It is too low where something else could explain a row as well: after " +
				"a start, a deferred or refused row or a gap, until a sweep over rows of any age and some minutes have passed, and while " +
				"topics are suspended.",
		}),
	}
}

// Run does what time demands until the context ends.
func (p *Pipeline) Run(ctx context.Context) error {
	window := make(chan struct{})
	go func() {
		defer close(window)
		p.recovery.Run(ctx)
	}()
	err := p.dispatch.Run(ctx)
	<-window
	return err
}

// Drain waits until nothing is being sent to the broker, the broker is away, or the context ends. Then it gives back what is not the sink's,
// see dispatch.Drain. It returns the number of messages that the sink has not answered.
func (p *Pipeline) Drain(ctx context.Context) int { return p.dispatch.Drain(ctx) }

// Reset sets a new low-water mark: after a gap, a failover or an operator's move. The mark forgets open transactions; their rows
// continue. The reader must have stopped or be in one of its calls except Offer. Reset returns the generation that begins: a
// checkpoint that Tracker.Checkpoint returned before belongs to an older one.
func (p *Pipeline) Reset(flavor outbox.Flavor, at outbox.Position) (generation uint64, err error) {
	if err := p.recovery.Lock(context.Background()); err != nil { // the present holder keeps it for one query at most
		return 0, err
	}
	defer p.recovery.Unlock()
	return p.recovery.Reset(flavor, at)
}

// Rewind sets the offered position back to the low-water mark and returns it: the transactions behind it are offered again. Rows
// in flight then settle their transactions, and rows that wait for their look-up are left to the sweep. The reader must have
// stopped.
func (p *Pipeline) Rewind() (outbox.Position, error) {
	if err := p.recovery.Lock(context.Background()); err != nil {
		return outbox.Position{}, err
	}
	defer p.recovery.Unlock()
	p.recovery.Clear()
	return p.tracker.Rewind()
}

// Pause stops the intake of the sweep, or resumes it. While it is stopped, AwaitLog and Shown return outbox.ErrPaused. Rows in
// flight continue.
func (p *Pipeline) Pause(on bool) { p.recovery.Pause(on) }

// WaitingKeys returns the keys that wait longest for an earlier row of theirs, at most n.
func (p *Pipeline) WaitingKeys(n int) []dispatch.WaitingKey { return p.dispatch.WaitingKeys(n) }

// TryTopics looks at suspended topics at once.
func (p *Pipeline) TryTopics() { p.dispatch.TryTopics() }

// Owns reports whether the relay owns a row: it is being sent to the broker, or its status is being written.
func (p *Pipeline) Owns(id outbox.Identity) bool { return p.tracker.Owns(id) }

// Behind returns the earlier row of its key that a row waits for (ordering: key), and why that one is not final; false when the
// row waits for none.
func (p *Pipeline) Behind(id outbox.Identity) (first outbox.Identity, why string, waits bool) {
	return p.dispatch.Behind(id)
}

// Tally counts the results since the start, and the rows that the binlog path left to the sweep.
func (p *Pipeline) Tally() (results sink.Tally, deferred uint64) {
	return p.dispatch.Tally(), p.tracker.Activity.Deferred()
}

// SweptSince returns when the row of a sweep was first sent that has had no final answer for the longest time; zero when there is none.
func (p *Pipeline) SweptSince() time.Time { return p.dispatch.SweptSince() }

// Snapshot is the flow's state for status and health.
type Snapshot struct {
	dispatch.State
	Owned   int
	Offered outbox.Position
	Settled outbox.Position // GTIDs is not filled in
}

// Snapshot returns the present state.
func (p *Pipeline) Snapshot() Snapshot {
	return Snapshot{State: p.dispatch.State(), Owned: p.tracker.Owned(), Offered: p.tracker.Offered(), Settled: p.tracker.LowWater()}
}
