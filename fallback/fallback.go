// Package fallback is the sweep over the outbox tables: it finds and publishes what the binlog path did not deliver.
//
// Guarantees (design 1, "The sweep"):
//   - Every PENDING row that is due and every expired claim is found, in whatever order the rows were committed: no
//     high-water id is kept between sweeps.
//   - A row is looked at in time for its due time: at the last sweep before it, or at one that the binlog path asked for when
//     it left the row to the sweep (SweepIn).
//   - A row is published only when the log will never deliver it any more: its transaction was offered and nobody owns
//     the row, or the recovery window was raised over it first, so that the binlog path checks it before it publishes.
//   - A row is published only under a claim of this process, as it stands in the table on the primary at that moment.
//   - Memory is one page of identities and the messages of one page.
//
// Run is the only goroutine of the package; sweeps follow each other and never overlap.
package fallback

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Flow is the pipeline as the sweep needs it. No method but Publish blocks.
type Flow interface {
	// Offered is the position before which every transaction of the log was offered to the registry.
	Offered() outbox.Position
	// Changed is closed when Offered or BackPressure may have changed.
	Changed() <-chan struct{}
	// BackPressure tells that the reader is held up by us: no progress of Offered is then no sign of trouble in the log.
	BackPressure() bool
	// RaiseWindow makes the reader check rows up to a position by primary key when it gets there.
	RaiseWindow(outbox.Position)
	// Reserve takes ownership and returns the rows that nobody owned.
	Reserve([]outbox.Candidate) []outbox.Candidate
	// Release gives reserved rows back; rows that were handed to the sink are left alone.
	Release([]outbox.Identity)
	// Publish hands claimed rows to the sink. It blocks while there is no room. On an error the rows that were not handed
	// over are still reserved.
	Publish(context.Context, []*outbox.Message) error
	// TopicSuspended tells that rows of the topic are to be left alone for now.
	TopicSuspended(topic string) bool
	// ActivityEpoch changes whenever a row that the log has shown may be left to the sweep.
	ActivityEpoch() uint64
	// Missed counts published rows that the log never showed as inserted.
	Missed(rows int)
	// BreakerClosed tells that the broker takes messages.
	BreakerClosed() bool
}

// Source is the primary server.
type Source interface {
	// End is the position behind the last transaction of the log.
	End(context.Context) (outbox.Position, error)
}

// Config is what to sweep and when; zero values take the defaults.
type Config struct {
	Tables       []string      // schema.table
	Interval     time.Duration // between sweeps; 30 s
	Threshold    time.Duration // age from which a row without a due time is looked for; 60 s
	Patience     time.Duration // how long to wait for a reader that makes no progress; 10 s
	ClaimTimeout time.Duration // age from which a claim is expired; 60 s
	Batch        int           // rows in a page: selected, claimed and read back together; 500, and never more

	Random func() float64 // jitter, in [0,1); math/rand
}

const maxBatch = 500 // rows in one statement (design 1, Writing rules)

func (c *Config) setDefaults() {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.Interval, 30 * time.Second},
		{&c.Threshold, time.Minute},
		{&c.Patience, 10 * time.Second},
		{&c.ClaimTimeout, time.Minute},
	} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Batch <= 0 || c.Batch > maxBatch {
		c.Batch = maxBatch
	}
}

// Sweeper runs the sweeps. Trigger, Full, SweepIn and SweepNow may be called at any time, from any goroutine.
type Sweeper struct {
	cfg     Config
	flow    Flow
	rows    Rows
	source  Source
	log     *zap.Logger
	metrics *metrics

	wake        chan struct{} // holds one token when there is a new trigger
	lock        sync.Mutex    // guards the pending triggers
	triggered   bool
	looks       looks // of SweepIn
	full        bool
	waiting     []chan<- int // of SweepNow: get the number of published rows
	lastSuccess atomic.Int64 // Unix nanoseconds of the last sweep that was complete, at first of New
	running     atomic.Bool
	lastRows    atomic.Int64 // published by that sweep; -1 before the first

	// The rest is owned by Run.
	plan     plan
	stall    stall
	swept    map[string]bool // tables that were swept since the start: claims in them may be ours until they expire
	orphans  orphans
	failures int // sweeps in a row that ended with an error of the database
	quiet    quiet
}

// New makes a Sweeper; it does no I/O. Its metrics are registered on reg.
func New(cfg Config, flow Flow, rows Rows, source Source, log *zap.Logger, reg prometheus.Registerer) *Sweeper {
	cfg.setDefaults()
	s := &Sweeper{cfg: cfg, flow: flow, rows: rows, source: source, log: log, wake: make(chan struct{}, 1), swept: map[string]bool{}, orphans: orphans{}}
	s.lastSuccess.Store(time.Now().UnixNano())
	s.lastRows.Store(-1)
	s.metrics = newMetrics(reg, cfg.Tables, s.lastSuccess.Load)
	return s
}

// Trigger asks for a sweep without threshold, at once and once more a second later, when rows of transactions that are in the
// log already have become visible. Many triggers cause at most one sweep a second. It never blocks.
func (s *Sweeper) Trigger() { s.ask(func() { s.triggered = true }) }

// Full asks for a sweep without threshold that begins after this call and is repeated until one was complete: after a gap,
// and at a start without a checkpoint. It never blocks.
func (s *Sweeper) Full() { s.ask(func() { s.full = true }) }

// SweepIn asks for a sweep after d, for a row that becomes due then or later. A sweep sees a row that becomes due within an
// interval only if the row stands in the table when the sweep begins; one that was written after the last sweep and becomes due
// before the next would be late by up to an interval. It never blocks.
func (s *Sweeper) SweepIn(d time.Duration) {
	if d >= s.cfg.Interval {
		return // the next sweep comes first, sees the row and plans for its due time
	}
	at := time.Now().Add(d)
	s.ask(func() { s.looks.add(at) })
}

// SweepNow is Full for somebody who waits: it returns how many rows were published. The error is that of ctx.
func (s *Sweeper) SweepNow(ctx context.Context) (published int, err error) {
	done := make(chan int, 1)
	s.ask(func() { s.full, s.waiting = true, append(s.waiting, done) })
	select {
	case published = <-done:
		return published, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *Sweeper) ask(trigger func()) {
	s.lock.Lock()
	trigger()
	s.lock.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// State tells whether a sweep is under way, and when the last complete one ended and how many rows it published; a zero
// time before the first.
func (s *Sweeper) State() (running bool, last time.Time, rows int) {
	if n := s.lastRows.Load(); n >= 0 {
		last, rows = time.Unix(0, s.lastSuccess.Load()), int(n)
	}
	return s.running.Load(), last, rows
}

// Run sweeps at once and then as planned until ctx ends; it returns nil. Errors of the database are logged, counted and
// tried again.
func (s *Sweeper) Run(ctx context.Context) error {
	for s.await(ctx) {
		s.running.Store(true)
		s.once(ctx)
		s.running.Store(false)
	}
	return nil
}

// await waits until the plan has a sweep due; it reports false when ctx ends first.
func (s *Sweeper) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		s.lock.Lock()
		if s.triggered {
			s.plan.trigger(time.Now())
			s.triggered = false
		}
		if s.full {
			s.plan.full()
			s.full = false
		}
		for _, at := range s.looks {
			s.plan.looks.add(at)
		}
		s.looks = s.looks[:0]
		s.lock.Unlock()
		wait := s.plan.wait(time.Now())
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}
