// Package redelivery makes final rows go out again: FAILED ones slowly, and SENT ones that no consumer has finished.
//
// Guarantees:
//   - A FAILED row is set back to PENDING when it has been FAILED for as long as configured, by the database's clock, with the
//     attempts that it has used. The sweep publishes it. Nothing here sends.
//   - A SENT row that is not in the state of the consumers which ends it goes out again under its message id, at most so many times as
//     configured: the count is on disk before the message is sent, and a relay that takes over counts the most that the other can have sent. The row stays SENT; only the consumers move it on, or MarkDone when
//     their service says that the message is done. The rows that are counted are bounded; while there are so many no other goes out.
//   - Nothing goes out while the broker takes no messages, nor a row of a suspended topic, nor a row in the relay's hands.
//   - It yields: pages of 500 rows with pauses of three times what a page took, at most 50 rows a second, and a quarter of what may be in
//     flight. A service that hangs delays redelivery alone.
//
// It is a station beside the sweep: nothing waits for it. Run owns a goroutine for FAILED rows and one for SENT rows.
package redelivery

import (
	"context"
	"net/http"
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
	// Pieces divides rows into groups that are read one after the other, so that the rows of a group fit into memory.
	Pieces(ctx context.Context, ids []outbox.Identity) ([][]outbox.Identity, error)
	// ReadSent reads rows that are SENT as messages; rows that are not SENT any more are missing.
	ReadSent(ctx context.Context, ids []outbox.Identity) ([]*outbox.Message, error)
	// MarkDone sets rows that are SENT to the consumers' state that ends their redelivery.
	MarkDone(ctx context.Context, ids []outbox.Identity) (int64, error)
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
	// Publish hands reserved rows to the sink, each with its entry, and waits while there is no room. On an error, that of ctx, only the
	// first rows were taken over.
	Publish(ctx context.Context, rows []*outbox.Message, rejected []outbox.Completion) (taken int, err error)
	// SetBack gives reserved rows back that are PENDING now, and asks for a sweep.
	SetBack([]outbox.Candidate)
}

// Memory is what must outlive the process. checkpoint.Store implements it.
type Memory interface {
	table.Waits
	// Redeliveries returns how often SENT rows went out again, and when each may do so next.
	Redeliveries() ([]table.Waiting, error)
	// KeepRedeliveries puts and drops such records; what was put is durable.
	KeepRedeliveries(put []table.Waiting, drop []outbox.Identity) error
}

// Config says what goes out again.
type Config struct {
	// Failed is how long a row is FAILED before it is tried again, by table (schema.table). Tables without it are left alone.
	Failed map[string]time.Duration
	// Sent says when SENT rows go out again, by table. Tables without it are left alone.
	Sent map[string]table.Redeliver
	// Version of the relay, for the service that is asked.
	Version string
	// Transport is how that service is reached; nil: http.DefaultTransport.
	Transport http.RoundTripper
	// TakenOver reports whether this run began with a take-over from another relay; nil: it did not.
	TakenOver func() bool
	// Retried hears of rows before they are set back; nil for nobody.
	Retried func([]outbox.Identity)
}

// Redelivery runs the passes.
type Redelivery struct {
	cfg     Config
	rows    Rows
	flow    Flow
	waits   Memory
	log     *zap.Logger
	metrics *metrics
	client  http.Client

	mu    sync.Mutex
	state map[string]*State
	sent  map[string]*SentState

	fails     map[string]int                 // passes over FAILED rows in a row that ended with an error; owned by their goroutine
	sentFails map[string]int                 // the same for SENT rows
	counts    map[outbox.Identity]table.Wait // how often SENT rows went out again; owned by their goroutine
	most      int                            // rows that are counted
	taken     map[string]time.Time           // tables taken over from another relay whose rows are not all counted; owned by their goroutine
}

// State is what there is to know of the FAILED rows of a table.
type State struct {
	Every   time.Duration // Config.Failed
	Retried int           // rows that were set back since the start
	Error   string        // of the last pass; "" when it had none
}

// SentState is what there is to know of the SENT rows of a table.
type SentState struct {
	Rule        table.Redeliver
	Redelivered int    // copies that went out since the start
	Marked      int    // rows that were marked because the service says that they are done
	GivenUp     int    // rows that went out so often as they may and are not finished, in the last pass
	Full        bool   // so many rows are counted that no other goes out
	Error       string // of the last pass; "" when it had none
}

// New makes a Redelivery; it does no I/O. waits remember the passes over tables whose rows do not say when they failed. Its metrics are
// registered on reg.
func New(cfg Config, rows Rows, flow Flow, waits Memory, log *zap.Logger, reg prometheus.Registerer) *Redelivery {
	if cfg.Retried == nil {
		cfg.Retried = func([]outbox.Identity) {}
	}
	r := &Redelivery{
		cfg: cfg, rows: rows, flow: flow, waits: waits, log: log, state: map[string]*State{}, fails: map[string]int{},
		sent: map[string]*SentState{}, sentFails: map[string]int{}, client: newClient(cfg.Transport), most: maxCounted, taken: map[string]time.Time{},
	}
	r.metrics = newMetrics(reg, cfg)
	for name, rule := range cfg.Sent {
		r.sent[name] = &SentState{Rule: rule}
	}
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

// Sent returns what there is to know of the SENT rows of a table; false when they are left alone.
func (r *Redelivery) Sent(name string) (SentState, bool) {
	if r == nil {
		return SentState{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sent[name]
	if s == nil {
		return SentState{}, false
	}
	return *s, true
}

func (r *Redelivery) updateSent(name string, change func(*SentState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.sent[name])
}

func (r *Redelivery) update(name string, change func(*State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.state[name])
}

// Run makes passes until ctx ends; it returns nil, or why the counts cannot be read from the state directory. Errors of the database are
// logged, counted and tried again.
func (r *Redelivery) Run(ctx context.Context) error {
	if err := r.load(); err != nil {
		return err
	}
	if err := r.noteTakeOver(); err != nil {
		return err
	}
	var work sync.WaitGroup
	work.Go(func() { passes(ctx, r.cfg.Failed, r.failed) })
	work.Go(func() { passes(ctx, r.cfg.Sent, r.redeliver) })
	work.Wait()
	return nil
}

// passes calls look for each table, again after what it returned.
func passes[R any](ctx context.Context, tables map[string]R, look func(context.Context, string, R) time.Duration) {
	next := map[string]time.Time{}
	for ctx.Err() == nil {
		soonest := time.Now().Add(time.Hour)
		for name, rule := range tables {
			if !time.Now().Before(next[name]) {
				next[name] = time.Now().Add(look(ctx, name, rule))
			}
			if next[name].Before(soonest) {
				soonest = next[name]
			}
		}
		sleep(ctx, time.Until(soonest))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
