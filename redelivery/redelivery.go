// Package redelivery makes final rows go out again: FAILED ones slowly, each table at its own pace.
//
// Guarantees:
//   - A FAILED row is set back to PENDING when it has been FAILED for as long as configured, by the database's clock, with the
//     attempts that it has used. The sweep publishes it. Nothing here sends.
//   - Nothing is set back while the broker takes no messages, nor a row of a suspended topic, nor a row in the relay's hands.
//   - It yields: pages of 500 rows with pauses of three times what a page took, and at most 50 rows a second are set back.
//
// It is a station beside the sweep: nothing waits for it. Run is the only goroutine of the package.
package redelivery

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Rows are the mapped tables, on the primary. table.Store implements it.
type Rows interface {
	// Final looks at a page of rows with a final status and returns those that have had it for long enough; a page may be empty
	// before the end.
	Final(ctx context.Context, name string, after table.Cursor, q table.FinalQuery) ([]outbox.Candidate, table.Cursor, error)
	// RetryFailed sets FAILED rows back to PENDING, due now and with the attempts that they have used.
	RetryFailed(ctx context.Context, ids []outbox.Identity) (int64, error)
	// DatesFailures tells whether the rows of a table say when they became FAILED.
	DatesFailures(name string) bool
}

// Flow is the pipeline.
type Flow interface {
	// Takes reports whether the broker takes messages and no operator has stopped the intake.
	Takes() bool
	// Reserve takes ownership. It returns the rows that nobody owned, each with its entry, and those of suspended topics.
	Reserve([]outbox.Candidate) (free, suspended []outbox.Candidate)
	// Release gives reserved rows back that are as they were.
	Release([]outbox.Candidate)
	// SetBack gives reserved rows back that are PENDING now, and asks for a sweep.
	SetBack([]outbox.Candidate)
}

// Config says what goes out again.
type Config struct {
	// Failed is how long a row is FAILED before it is tried again, by table (schema.table). Tables without it are left alone.
	Failed map[string]time.Duration
	// Retried hears of rows before they are set back; nil for nobody.
	Retried func([]outbox.Identity)
}

// Redelivery runs the passes.
type Redelivery struct {
	cfg     Config
	rows    Rows
	flow    Flow
	waits   table.Waits
	log     *zap.Logger
	metrics *metrics

	mu    sync.Mutex
	state map[string]*State
	fails map[string]int // passes in a row that ended with an error of the database; owned by Run
}

// State is what there is to know of the FAILED rows of a table.
type State struct {
	Every   time.Duration // Config.Failed
	Retried int           // rows that were set back since the start
	Error   string        // of the last pass; "" when it had none
}

// New makes a Redelivery; it does no I/O. waits remember the passes over tables whose rows do not say when they failed. Its metrics are
// registered on reg.
func New(cfg Config, rows Rows, flow Flow, waits table.Waits, log *zap.Logger, reg prometheus.Registerer) *Redelivery {
	if cfg.Retried == nil {
		cfg.Retried = func([]outbox.Identity) {}
	}
	r := &Redelivery{cfg: cfg, rows: rows, flow: flow, waits: waits, log: log, state: map[string]*State{}, fails: map[string]int{}}
	r.metrics = newMetrics(reg, cfg)
	for name, every := range cfg.Failed {
		r.state[name] = &State{Every: every}
	}
	return r
}

// State returns what there is to know of a table; false when its FAILED rows are left alone.
func (r *Redelivery) State(name string) (State, bool) {
	if r == nil {
		return State{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state[name]
	if s == nil {
		return State{}, false
	}
	return *s, true
}

func (r *Redelivery) update(name string, change func(*State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.state[name])
}

// Run makes passes until ctx ends; it returns nil. Errors of the database are logged, counted and tried again.
func (r *Redelivery) Run(ctx context.Context) error {
	next := map[string]time.Time{}
	for ctx.Err() == nil {
		soonest := time.Now().Add(time.Hour)
		for name, every := range r.cfg.Failed {
			if !time.Now().Before(next[name]) {
				next[name] = time.Now().Add(r.failed(ctx, name, every))
			}
			if next[name].Before(soonest) {
				soonest = next[name]
			}
		}
		sleep(ctx, time.Until(soonest))
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
