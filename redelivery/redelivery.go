// Package redelivery sends final rows again: FAILED ones slowly, and SENT ones that no consumer has finished.
//
// Guarantees:
// - A FAILED row is reset to PENDING when it has been FAILED for the configured time, by the database's clock, with its used
// attempts. The sweep publishes it. Nothing here sends it.
// - A SENT row that is not in the consumers' final state is sent again under its message id, at most the configured number of
// times: the count is on disk before the message is sent, and a relay that takes over counts the maximum that the other can have
// sent. The row stays SENT; only the consumers change it, or MarkDone when their service reports the message as done. The number
// of counted rows is bounded; at the bound no other row is sent again.
// - Nothing is sent while the broker accepts no messages, nor a row of a suspended topic, nor an owned row.
// - Tables are processed alternately, a page each. A pass continues after an outage of the broker.
// - It yields: pages of 500 rows with pauses of three times what a page took, at most 50 rows per second, and a quarter of the
// window in flight. A service that hangs delays redelivery alone.
//
// It runs next to the sweep: nothing waits for it. Run owns a goroutine for FAILED rows and one for SENT rows.
package redelivery

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline/reserved"
)

// Rows are the mapped tables, on the primary. store.Store implements it.
type Rows interface {
	// Final reads a page of rows with a final status and returns those that have had it for long enough; a page may be empty
	// before the end.
	Final(ctx context.Context, name string, after table.Cursor, q table.FinalQuery) ([]outbox.Candidate, table.Cursor, error)
	// RetryFailed resets FAILED rows to PENDING, due now and with their used attempts.
	RetryFailed(ctx context.Context, ids []outbox.Identity) (int64, error)
	// Pieces divides rows into groups that are read one after the other, so that the rows of a group fit into memory.
	Pieces(ctx context.Context, ids []outbox.Identity) ([][]outbox.Identity, error)
	// ReadSent reads SENT rows as messages; rows that are no longer SENT are not in the result.
	ReadSent(ctx context.Context, ids []outbox.Identity) ([]*outbox.Message, error)
	// MarkDone sets SENT rows to the consumers' final state.
	MarkDone(ctx context.Context, ids []outbox.Identity) (int64, error)
	// DatesFailures reports whether the rows of a table record when they became FAILED.
	DatesFailures(name string) bool
}

// Flow is the pipeline.
type Flow interface {
	reserved.Flow
	// Takes reports whether the broker accepts messages and no operator has stopped the intake.
	Takes() bool
	// SetBack returns reserved rows that are PENDING now, and requests a sweep.
	SetBack([]outbox.Candidate)
}

// Memory stores what must survive the process. checkpoint.Waits implements it.
type Memory interface {
	table.Waits
	// Redeliveries returns how often SENT rows were sent again, and the next time for each.
	Redeliveries() ([]table.Waiting, error)
	// KeepRedeliveries stores and drops such records; stored ones are durable.
	KeepRedeliveries(put []table.Waiting, drop []outbox.Identity) error
}

// Config says which rows are sent again.
type Config struct {
	// Failed is how long a row is FAILED before it is tried again, by table (schema.table). Tables without it are skipped.
	Failed map[string]time.Duration
	// Sent says when SENT rows are sent again, by table. Tables without it are skipped.
	Sent map[string]table.Redeliver
	// Version of the relay, for the requests to the service.
	Version string
	// Transport is used for the requests to that service; nil: http.DefaultTransport.
	Transport http.RoundTripper
	// TakenOver reports whether this run began with a take-over from another relay; nil: it did not.
	TakenOver func() bool
	// Retried is called with rows before they are reset; may be nil.
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

	state *states[State]
	sent  *states[SentState]

	failedPasses map[string]*failedPass // begun passes on FAILED rows, by table; owned by their goroutine, as the next
	fails        map[string]int         // consecutive passes that ended with an error
	sentPasses   map[string]*sentPass   // the same for SENT rows
	sentFails    map[string]int
	counts       map[outbox.Identity]table.Wait // how often SENT rows were sent again; owned by their goroutine
	most         int                            // maximum number of counted rows
	taken        map[string]time.Time           // tables taken over from another relay whose rows are not all counted; owned by their goroutine
}

// State is the state of the FAILED rows of a table.
type State struct {
	Every   time.Duration // Config.Failed
	Retried int           // rows reset since the start
	Error   string        // of the last pass; "" when it had none
}

// SentState is the state of the SENT rows of a table.
type SentState struct {
	Rule        table.Redeliver
	Redelivered int    // copies sent since the start
	Marked      int    // rows marked because the service reports them as done
	GivenUp     int    // rows at their maximum that are not finished, in the last pass
	Full        bool   // the number of counted rows is at its bound: no other row is sent again
	Error       string // of the last pass; "" when it had none
}

// New returns a Redelivery; it does no I/O. waits stores the passes on tables whose rows do not record when they failed. Its
// metrics are registered on reg.
func New(cfg Config, rows Rows, flow Flow, waits Memory, log *zap.Logger, reg prometheus.Registerer) *Redelivery {
	if cfg.Retried == nil {
		cfg.Retried = func([]outbox.Identity) {}
	}
	return &Redelivery{
		cfg: cfg, rows: rows, flow: flow, waits: waits, log: log, client: newClient(cfg.Transport), metrics: newMetrics(reg, cfg),
		state: newStates(cfg.Failed, func(every time.Duration) State { return State{Every: every} }), fails: map[string]int{},
		sent: newStates(cfg.Sent, func(rule table.Redeliver) SentState { return SentState{Rule: rule} }), sentFails: map[string]int{},
		failedPasses: map[string]*failedPass{}, sentPasses: map[string]*sentPass{}, most: maxCounted, taken: map[string]time.Time{},
	}
}

// states is what is known of each table of a configuration.
type states[S any] struct {
	mu sync.Mutex
	of map[string]*S
}

func newStates[R, S any](tables map[string]R, begin func(R) S) *states[S] {
	s := &states[S]{of: map[string]*S{}}
	for name, rule := range tables {
		s.of[name] = new(begin(rule))
	}
	return s
}

func (s *states[S]) get(name string) (state S, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name] == nil {
		return state, false
	}
	return *s.of[name], true
}

func (s *states[S]) update(name string, change func(*S)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.of[name])
}

// State returns the state of a table; false when its FAILED rows are skipped.
func (r *Redelivery) State(name string) (State, bool) {
	if r == nil {
		return State{}, false
	}
	return r.state.get(name)
}

// Sent returns the state of the SENT rows of a table; false when they are skipped.
func (r *Redelivery) Sent(name string) (SentState, bool) {
	if r == nil {
		return SentState{}, false
	}
	return r.sent.get(name)
}

// Run makes passes until ctx ends; it returns nil, or why the counts cannot be read from the state directory. Errors of the
// database are logged, counted and retried.
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

// passes calls look for each table that is due, in the order of their names, and again after the time that it returned. look
// processes a page and returns 0 while its pass has more: so a table with many rows delays those of another by a page each.
func passes[R any](ctx context.Context, tables map[string]R, look func(context.Context, string, R) time.Duration) {
	next, names := map[string]time.Time{}, slices.Sorted(maps.Keys(tables))
	for ctx.Err() == nil {
		soonest := time.Now().Add(time.Hour)
		for _, name := range names {
			if !time.Now().Before(next[name]) {
				next[name] = time.Now().Add(look(ctx, name, tables[name]))
			}
			if next[name].Before(soonest) {
				soonest = next[name]
			}
		}
		outbox.Wait(ctx, time.Until(soonest), nil)
	}
}
