// Package retention takes final rows out of the outbox tables when they are old: SENT rows are deleted or move to an archive table,
// FAILED rows move to a failed-message log.
//
// Guarantees:
//   - A row leaves only while it is SENT or FAILED, and for longer than configured, by the database's clock: both are looked at under
//     the row's lock, in the transaction that takes it out. PENDING, SENDING and held rows never leave. SENT in the table is always a
//     confirmed status, so that no row of the journal or of the registry is concerned.
//   - A row that moves is in exactly one of the two tables, whatever crashes.
//   - It yields: batches of Config.Batch rows, with pauses of three times what a batch took, longer while the server's purge does not
//     keep up or while the replica that is named is too far behind. It waits for no row lock, and a row that somebody has locked is for a later pass.
//   - A pass reads each page of a table once and remembers in it how far it came; nothing is remembered between passes.
//
// It is a station beside the sweep and not a part of it: it needs neither the flow nor the registry, and nothing waits for it. Run is
// the only goroutine of the package; passes follow each other and never overlap.
package retention

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Rows are the mapped tables, on the primary. table.Store implements it.
type Rows interface {
	// Expired looks at a page of rows behind a primary key and returns those that are to leave.
	Expired(ctx context.Context, name, after string, of []table.Expiry) (table.ExpiredPage, error)
	// Expire takes rows out, those that are still to leave and that nobody has locked.
	Expire(ctx context.Context, name string, e table.Expiry, ids []string) (table.Left, error)
	// TimeOfDay is the database's time since midnight in the zone of the table.
	TimeOfDay(ctx context.Context, name string) (time.Duration, error)
	// History is how many transactions the server has not purged; false when that cannot be seen.
	History(ctx context.Context) (length int64, known bool, err error)
}

// Replica is a server that follows the primary.
type Replica interface {
	// Lag is how far it is behind; following is false when its replication stands still.
	Lag(ctx context.Context) (lag time.Duration, following bool, err error)
}

// Config is what leaves and when; zero values take the defaults.
type Config struct {
	Tables     []string                  // schema.table
	Expiries   map[string][]table.Expiry // of each table; without one nothing leaves it
	Window     Window                    // passes work in these hours only; the zero value is the whole day
	Interval   time.Duration             // between passes; a 24th of the smallest age, from a minute to an hour
	Batch      int                       // rows in a transaction; 500, and never more
	MaxHistory int64                     // length of the history list above which nothing is deleted; 200,000
	Replica    Replica                   // that is not to be left behind; nil: none
	MaxLag     time.Duration             // of the replica, above which nothing leaves; 0: any
}

const (
	maxBatch = 500
	// maxHistory is far above what a server at work has (some thousands), and far below where its statements suffer (millions). What is
	// deleted beyond it only makes the list longer.
	maxHistory = 200_000
)

func (c *Config) setDefaults() {
	if c.Interval <= 0 {
		c.Interval = time.Hour
		for _, of := range c.Expiries {
			for _, e := range of {
				c.Interval = max(time.Minute, min(c.Interval, e.Age/24))
			}
		}
	}
	if c.Batch <= 0 || c.Batch > maxBatch {
		c.Batch = maxBatch
	}
	if c.MaxHistory <= 0 {
		c.MaxHistory = maxHistory
	}
}

// Off tells whether nothing ever leaves.
func (c Config) Off() bool {
	for _, of := range c.Expiries {
		if len(of) > 0 {
			return false
		}
	}
	return true
}

// State is what there is to know of the passes.
type State struct {
	Running bool
	Paused  string    // why the pass that runs waits; "" when it does not
	Last    time.Time // when the last pass came to the end of every table; zero before the first
	Rows    int       // left in the last pass that ended, or have left so far in the one that runs
	Error   string    // of the last pass; "" when it had none
}

// Retention runs the passes.
type Retention struct {
	cfg     Config
	rows    Rows
	log     *zap.Logger
	metrics *metrics
	asked   chan struct{} // holds one token when somebody asked for a pass

	mu    sync.Mutex
	state State
	made  time.Time // of New

	// The rest is owned by Run.
	failures int  // passes in a row that ended with an error of the database
	blind    bool // it was said that the history list cannot be seen
	deaf     bool // it was said that the replica does not answer
}

// New makes a Retention; it does no I/O. Its metrics are registered on reg.
func New(cfg Config, rows Rows, log *zap.Logger, reg prometheus.Registerer) *Retention {
	cfg.setDefaults()
	r := &Retention{cfg: cfg, rows: rows, log: log, asked: make(chan struct{}, 1), made: time.Now()}
	r.metrics = newMetrics(reg, cfg.Tables, r.sinceSuccess)
	return r
}

// State returns what there is to know now.
func (r *Retention) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *Retention) update(change func(*State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

// sinceSuccess is the age of the last complete pass, at first of New; 0 while nothing ever leaves.
func (r *Retention) sinceSuccess() time.Duration {
	last := r.State().Last
	switch {
	case r.cfg.Off():
		return 0
	case last.IsZero():
		last = r.made
	}
	return time.Since(last)
}

// Off tells whether nothing ever leaves.
func (r *Retention) Off() bool { return r.cfg.Off() }

// Now asks for a pass at once, whatever the window says; it never blocks.
func (r *Retention) Now() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// Run makes passes until ctx ends; it returns nil. Errors of the database are logged, counted and tried again.
func (r *Retention) Run(ctx context.Context) error {
	if r.cfg.Off() {
		<-ctx.Done()
		return nil
	}
	asked := false
	for ctx.Err() == nil {
		wait := r.once(ctx, asked)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			asked = false
		case <-r.asked:
			asked = true
		case <-timer.C:
			asked = false
		}
		timer.Stop()
	}
	return nil
}
