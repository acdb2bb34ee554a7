// Package fallback is the sweep over the outbox tables: it finds and publishes rows that the binlog path did not deliver.
//
// Guarantees:
// - Every PENDING row that is due and every expired claim is found, in whatever order the rows were committed: no high-water id
// is kept between sweeps.
// - A row is looked at when it becomes due: timers hold the rows that become due next, from looks at the table and from
// announcements (DueIn). The sweep publishes a row that is more than a second late, unless it became late in the timers.
// - A row is published only when the log will never deliver it: its transaction was offered and no entry owns the row, or the
// recovery window was raised over it first, so that the binlog path checks it before it publishes.
// - A row is published only under a claim of this process, in its state in the table on the primary at that time.
// - Memory is a page of identities, 16 MiB of messages or one longer message for each worker and for the timers of each table,
// and a bounded number of timers.
// - The backlog of a table delays the rows of another by a page and some seconds, and not until its end.
// - One row affects only itself: a row that cannot be read or claimed is left out, and the other rows of its page and its batch
// are published.
//
// Run owns a goroutine for the timers of each table; they do not wait for sweeps. Sweeps are sequential and never overlap, nor
// do the shares of tables in them; the claims of the batches of a share do, one goroutine each.
package fallback

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/reserved"
)

// Flow is the pipeline as the sweep needs it.
type Flow interface {
	reserved.Flow
	// Generation counts how often the position was moved.
	Generation() uint64
	// AwaitLog waits until every transaction of the log up to end was offered to the registry, or, if the reader makes no
	// progress for patience, until the reader must check rows by primary key when it gets there. The error is
	// outbox.ErrBrokerAway while the broker accepts no messages, outbox.ErrPaused while an operator has stopped the intake,
	// outbox.ErrMoved when the position was moved since the end was read, another one while this relay may not publish, else that
	// of ctx.
	AwaitLog(ctx context.Context, end outbox.LogEnd, patience time.Duration) error
	// Shown reports whether rows before end need no wait: the log was offered up to there, or its rows are checked before they
	// are published. The error is that of AwaitLog.
	Shown(end outbox.LogEnd) (bool, error)
	// Swept reports a complete sweep.
	Swept(outbox.Sweep)
}

// Source is the primary server.
type Source interface {
	// End returns the file and the offset after the last transaction of the log. It is called for each page.
	End(context.Context) (outbox.Position, error)
}

// Config is what to sweep and when; zero values take the defaults.
type Config struct {
	Tables       []string      // schema.table
	Interval     time.Duration // between sweeps; 30 s
	Threshold    time.Duration // minimum age of a row without a due time; 60 s
	Patience     time.Duration // how long to wait for a reader without progress; 10 s
	ClaimTimeout time.Duration // age at which a claim expires; 60 s
	Batch        int           // rows that are claimed and read back together; 500, the maximum
	Workers      int           // batches of a table that are claimed at the same time; 1
	Ordered      []string      // tables (schema.table) that keep the order of their keys: their batches do not overlap
	Rate         int           // maximum of rows per second that sweeps publish, of all tables together; 0: no limit
	Replica      Candidates    // serves most regular sweeps instead of the primary; nil: none
	Timers       int           // maximum number of timers per table; 10,000 divided by the tables, and at least 500

	Random func() float64 // jitter, in [0,1); math/rand
}

const (
	maxBatch  = 500             // rows in one statement
	listed    = 8               // batches in a page of the list
	leastLook = 2 * time.Second // between looks of timers: a shorter interval of sweeps is for other rows
	maxLooks  = 4               // of timers at the same time
)

// lookEvery is the time between looks of timers at a table.
func (c *Config) lookEvery() time.Duration { return max(c.Interval, leastLook) }

func (c *Config) setDefaults() {
	setDefault(&c.Interval, 30*time.Second)
	setDefault(&c.Threshold, time.Minute)
	setDefault(&c.Patience, 10*time.Second)
	setDefault(&c.ClaimTimeout, time.Minute)
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Timers <= 0 {
		c.Timers = max(minTimers, maxTimers/max(1, len(c.Tables)))
	}
	if c.Batch <= 0 || c.Batch > maxBatch {
		c.Batch = maxBatch
	}
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// Sweeper runs the sweeps.
type Sweeper struct {
	cfg      Config
	triggers *Triggers
	flow     Flow
	rows     Rows
	source   Source
	log      *zap.Logger
	metrics  *metrics
	claims   *claims
	looks    *semaphore.Weighted // of timers: all tables are looked at at the same time, and each look has a connection
	progress

	// The rest is owned by Run.
	plan     plan
	replica  replica
	failures int       // consecutive sweeps that ended with an error of the database
	failing  time.Time // when the first of them ended
}

// New returns a Sweeper; it does no I/O. Its metrics are registered on reg.
func New(cfg Config, triggers *Triggers, flow Flow, rows Rows, source Source, log *zap.Logger, reg prometheus.Registerer) *Sweeper {
	cfg.setDefaults()
	s := &Sweeper{cfg: cfg, triggers: triggers, flow: flow, rows: rows, source: source, log: log, claims: newClaims(cfg.Tables, cfg.ClaimTimeout), looks: semaphore.NewWeighted(maxLooks)}
	s.lastSuccess.Store(time.Now().UnixNano())
	s.lastRows.Store(-1)
	s.metrics = newMetrics(reg, cfg.Tables, s.lastSuccess.Load, triggers)
	s.replica = replica{log: log, errors: s.metrics.replicaErrors}
	return s
}

// progress is what others see of the sweeps.
type progress struct {
	lastSuccess atomic.Int64 // Unix nanoseconds of the last complete sweep, at first of New
	running     atomic.Bool
	lastRows    atomic.Int64 // sent to the sink by that sweep; -1 before the first
	trouble     atomic.Pointer[trouble]
}

// trouble is why sweeps are not complete.
type trouble struct {
	err   error
	since time.Time
}

// Trouble returns since when sweeps fail, and why; a nil error while they do not. A single failure does not count.
func (p *progress) Trouble() (since time.Time, err error) {
	if t := p.trouble.Load(); t != nil {
		return t.since, t.err
	}
	return time.Time{}, nil
}

// State reports whether a sweep is running, when the last complete one ended, and the number of rows that it sent to the sink; a
// zero time before the first.
func (p *progress) State() (running bool, last time.Time, rows int) {
	if n := p.lastRows.Load(); n >= 0 {
		last, rows = time.Unix(0, p.lastSuccess.Load()), int(n)
	}
	return p.running.Load(), last, rows
}

// TookOver reports whether no row is claimed that a process may have sent which had ended when this one started: they were all
// handed to the flow. The first call is made when the log has shown all that such a process may have sent from it, and such claims have
// expired. One row that cannot be claimed or read, such as one that is locked, keeps it false; it delays no other row.
func (s *Sweeper) TookOver() bool { return s.claims.tookOver() }

// Run sweeps at once and then as planned, and serves the timers, until ctx ends; it returns nil. Errors of the database are
// logged, counted and retried.
func (s *Sweeper) Run(ctx context.Context) error {
	var timers sync.WaitGroup
	defer timers.Wait()
	for _, name := range s.cfg.Tables {
		timers.Go(func() { s.serve(ctx, name) })
	}
	due := func() time.Duration {
		s.triggers.apply(&s.plan, time.Now())
		return s.plan.wait(time.Now())
	}
	for await(ctx, s.triggers.wake, due) {
		s.running.Store(true)
		s.once(ctx)
		s.running.Store(false)
	}
	return nil
}

// await waits until due returns no time to wait; wake makes it call due again. It returns false when ctx ends first.
func await(ctx context.Context, wake <-chan struct{}, due func() time.Duration) bool {
	for ctx.Err() == nil {
		wait := due()
		if wait <= 0 {
			return true
		}
		outbox.Wait(ctx, wait, wake)
	}
	return false
}
