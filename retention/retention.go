// Package retention removes old final rows from the outbox tables: SENT rows are deleted or move to an archive table, FAILED rows
// move to a failed-message log.
//
// Guarantees:
// - A row leaves only if it has been SENT or FAILED for longer than configured, by the database's clock: both are checked under
// the row's lock, in the transaction that removes it. PENDING, SENDING and held rows never leave. SENT in the table is always a
// confirmed status, so that no row of the journal or of the registry is affected.
// - A row that moves is in exactly one of the two tables, whatever crashes.
// - It yields: batches of Config.Batch rows, with pauses of three times what a batch took, longer while the server's purge is
// behind or while the configured replica is too far behind. It waits for no row lock; a row that another session has locked is
// left to a later pass.
// - A pass reads each page of a table once and keeps its position in it; nothing is kept between passes.
// - Tables share a pass, a minute each: one with many old rows does not take the whole window from the others.
//
// It runs next to the sweep and is not part of it: it needs neither the flow nor the registry, and nothing waits for it. Run is
// the only goroutine of the package; passes are sequential and never overlap.
package retention

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Rows are the mapped tables, on the primary. store.Store implements it.
type Rows interface {
	// Expired reads a page of rows after a primary key and returns those that must leave.
	Expired(ctx context.Context, name, after string, of []table.Expiry) (table.ExpiredPage, error)
	// Expire removes those of the rows that must still leave and are not locked.
	Expire(ctx context.Context, name string, e table.Expiry, ids []string) (table.Left, error)
	// TimeOfDay returns the database's time since midnight in the zone of the table.
	TimeOfDay(ctx context.Context, name string) (time.Duration, error)
	// History returns the number of transactions that the server has not purged; false when the account cannot read it.
	History(ctx context.Context) (length int64, known bool, err error)
}

// Replica is a server that follows the primary.
type Replica interface {
	// Lag returns how far it is behind; following is false when its replication is stopped.
	Lag(ctx context.Context) (lag time.Duration, following bool, err error)
}

// Config says what leaves and when; zero values take the defaults.
type Config struct {
	Tables   []string                  // schema.table
	Expiries map[string][]table.Expiry // of each table; without one nothing leaves it
	Window   Window                    // passes work in these hours only; the zero value is the whole day
	Interval time.Duration             // between passes; a 24th of the smallest age, from a minute to an hour
	Batch    int                       // rows in a transaction; 500, the maximum
	Replica  Replica                   // that must not fall behind; nil: none
	MaxLag   time.Duration             // of the replica, above which nothing leaves; 0: any
}

const (
	maxBatch = 500
	// maxHistory is the length of the history list above which nothing is deleted. It is far above what a working server has (some
	// thousands), and far below where its statements become slow (millions). Deletes above it only make the list longer.
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
}

// Off reports whether no table has an expiry.
func (c Config) Off() bool {
	for _, of := range c.Expiries {
		if len(of) > 0 {
			return false
		}
	}
	return true
}

// State is the state of the passes.
type State struct {
	Running bool
	Paused  string    // why the running pass waits; "" when it does not
	Last    time.Time // when the last pass reached the end of every table; zero before the first
	Rows    int       // rows that left in the last pass, or so far in the running one
	Error   string    // of the last pass; "" when it had none
}

// Retention runs the passes.
type Retention struct {
	cfg     Config
	rows    Rows
	log     *zap.Logger
	metrics *metrics
	asked   chan struct{} // holds a token when a pass was requested

	mu    sync.Mutex
	state State
	made  time.Time // of New

	// The rest is owned by Run.
	failures  int  // consecutive passes that ended with an error of the database
	noHistory bool // the log has said that the history list cannot be read
	noReplica bool // the log has said that the replica does not answer
}

// New returns a Retention; it does no I/O. Its metrics are registered on reg.
func New(cfg Config, rows Rows, log *zap.Logger, reg prometheus.Registerer) *Retention {
	cfg.setDefaults()
	r := &Retention{cfg: cfg, rows: rows, log: log, asked: make(chan struct{}, 1), made: time.Now()}
	r.metrics = newMetrics(reg, cfg.Tables, r.sinceSuccess)
	return r
}

// State returns the current state.
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

// sinceSuccess is the age of the last complete pass, at first of New; 0 while no table has an expiry.
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

// Off reports whether no table has an expiry.
func (r *Retention) Off() bool { return r.cfg.Off() }

// Now requests a pass at once, whatever the window; it never blocks.
func (r *Retention) Now() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// Run makes passes until ctx ends; it returns nil. Errors of the database are logged, counted and retried.
func (r *Retention) Run(ctx context.Context) error {
	if r.cfg.Off() {
		<-ctx.Done()
		return nil
	}
	asked := false
	for ctx.Err() == nil {
		wait := r.once(ctx, asked)
		asked = false
		select {
		case <-ctx.Done():
		case <-r.asked:
			asked = true
		case <-time.After(wait):
		}
	}
	return nil
}
