// Package bench measures a relay between an operator's own servers: how soon a committed row is with the broker at a steady rate, and how
// fast a backlog in the log is worked off.
//
// Guarantee: it writes into one table of its own, which it makes and drops, and publishes to one topic. A Result is returned only when each
// committed row has been acknowledged by the broker and is SENT. Times are taken in this process alone, so no two clocks are compared.
// Run owns the goroutine of the relay and those of the connections that write rows; all have ended when it returns.
package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Options are what a person asks to be measured.
type Options struct {
	Table   string        // schema.table, which must not exist
	Topic   string        // an existing topic without consumers
	Rate    int           // rows a second of the steady part, one a transaction
	Time    time.Duration // of the steady part
	Backlog int           // rows that are written while the relay is stopped, ten a transaction
	Body    int           // bytes of each body
}

// Messages is how many messages a run publishes, when none is repeated.
func (o Options) Messages() int { return o.warmUp() + o.steady() + o.Backlog }

func (o Options) warmUp() int { return max(1, int(warmUp.Seconds()*float64(o.Rate))) }

func (o Options) steady() int { return max(1, int(o.Time.Seconds()*float64(o.Rate))) }

// Result is what was measured.
type Result struct {
	Table    string `json:"table"`
	Topic    string `json:"topic"`
	Body     int    `json:"body_bytes"`
	Steady   Steady `json:"steady"`
	Drain    Drain  `json:"drain"`
	Messages int    `json:"messages"` // that the broker has acknowledged, each row once
	Repeated int    `json:"repeated"` // and those that it has acknowledged again
}

// Steady is the part with rows at a rate.
type Steady struct {
	Rows   int     `json:"rows"`
	Rate   float64 `json:"rows_per_second"` // less than what was asked for when the database took no more
	Commit Times   `json:"commit_ms"`       // of the INSERT, which is a transaction
	// Published is from the return of the INSERT to the broker's acknowledgement; 0 when that came first.
	Published Times `json:"published_ms"`
}

// Drain is the part with a backlog in the log.
type Drain struct {
	Rows         int     `json:"rows"`
	FirstSeconds float64 `json:"first_message_seconds"` // from the start of the relay
	Published    float64 `json:"published_per_second"`  // from the first acknowledgement to the last
	Sent         float64 `json:"sent_per_second"`       // from the start of the relay until each row is SENT
	CPUMicros    float64 `json:"cpu_us_per_message"`    // of this process, in which the relay is alone then
}

// Times are milliseconds.
type Times struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Relay runs a relay on the table until the context ends. It calls answered with each result of the broker.
type Relay func(ctx context.Context, answered func([]sink.Result)) error

// patience is how long nothing may happen before a run is given up, and how long the table may take to go.
const patience = 30 * time.Second

// warmUp is how long rows are written before those that count.
const warmUp = time.Second

// Run makes the table by the statement ddl, measures and drops the table. An error says what did not work; the table is dropped all the same.
func Run(ctx context.Context, db *sql.DB, ddl string, relay Relay, opts Options) (result Result, err error) {
	schema, name, _ := table.SplitName(opts.Table)
	var there int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ? AND table_name = ?", schema, name).Scan(&there); err != nil {
		return result, fmt.Errorf("ask whether %s exists: %w", opts.Table, err)
	}
	if there > 0 {
		return result, fmt.Errorf("the table %s exists: a run that was killed left it, or another one is at work; DROP TABLE %s, or name another table", opts.Table, opts.Table)
	}
	if _, err := db.ExecContext(ctx, ddl); err != nil {
		return result, fmt.Errorf("create the table %s: %w (the account needs SELECT, INSERT, UPDATE, CREATE and DROP on it)", opts.Table, err)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if _, dropped := db.ExecContext(ending, "DROP TABLE "+quoted(opts.Table)); dropped != nil {
			err = errors.Join(err, fmt.Errorf("drop the table %s: %w; drop it by hand", opts.Table, dropped))
		}
	}()
	r := &run{opts: opts, db: db, relay: relay, arrivals: new(arrivals)}
	result = Result{Table: opts.Table, Topic: opts.Topic, Body: opts.Body}
	if result.Steady, err = r.steady(ctx); err != nil {
		return result, err
	}
	if opts.Backlog > 0 {
		if result.Drain, err = r.drain(ctx); err != nil {
			return result, err
		}
	}
	result.Messages, result.Repeated = r.arrivals.counts()
	return result, nil
}

// run is one run.
type run struct {
	opts     Options
	db       *sql.DB
	relay    Relay
	arrivals *arrivals
	rows     int // that were begun
}

// steady measures rows at a rate.
func (r *run) steady(ctx context.Context) (s Steady, err error) {
	ctx, stop := r.start(ctx)
	defer func() {
		if stopped := stop(); err == nil {
			err = stopped
		}
	}()
	if _, err := r.pace(ctx, r.opts.warmUp()); err != nil {
		return s, err
	}
	if err := r.settled(ctx); err != nil {
		return s, err
	}
	began, first, n := time.Now(), r.rows, r.opts.steady()
	commits, err := r.pace(ctx, n)
	if err != nil {
		return s, err
	}
	took := time.Since(began)
	if err := r.settled(ctx); err != nil {
		return s, err
	}
	inserts, published := make([]time.Duration, n), make([]time.Duration, n)
	for i, c := range commits {
		inserts[i], published[i] = c.took, max(0, r.arrivals.at(first+i).Sub(c.returned))
	}
	return Steady{Rows: n, Rate: float64(n) / took.Seconds(), Commit: times(inserts), Published: times(published)}, nil
}

// drain measures a backlog that was written while the relay was stopped.
func (r *run) drain(ctx context.Context) (d Drain, err error) {
	first := r.rows
	if err := r.fill(ctx, r.opts.Backlog); err != nil {
		return d, err
	}
	began, used := time.Now(), processTime()
	ctx, stop := r.start(ctx)
	defer func() {
		if stopped := stop(); err == nil {
			err = stopped
		}
	}()
	if err := r.settled(ctx); err != nil {
		return d, err
	}
	n, took := float64(r.opts.Backlog), time.Since(began)
	from, to := r.arrivals.span(first)
	return Drain{
		Rows: r.opts.Backlog, FirstSeconds: from.Sub(began).Seconds(), Published: n / max(to.Sub(from), time.Millisecond).Seconds(),
		Sent: n / took.Seconds(), CPUMicros: float64((processTime() - used).Microseconds()) / n,
	}, nil
}

// start runs the relay; the context that it returns ends when the relay does. stop ends it and returns its error.
func (r *run) start(ctx context.Context) (_ context.Context, stop func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	relayed, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := r.relay(relayed, r.arrivals.note)
		cancel(errors.Join(errors.New("the relay has stopped"), err))
		ended <- err
	}()
	return ctx, func() error {
		end()
		return <-ended
	}
}

// settled waits until the broker has acknowledged every row and the table shows it.
func (r *run) settled(ctx context.Context) error {
	progress, seen := time.Now(), -1
	for {
		arrived, _ := r.arrivals.counts()
		open, failed, err := r.open(ctx)
		switch {
		case err != nil:
			return r.because(ctx, err)
		case failed != "":
			return fmt.Errorf("a row became FAILED: %s", failed)
		case open < 0 && arrived == r.rows:
			return nil
		case arrived+open > seen:
			progress, seen = time.Now(), arrived+open
		case time.Since(progress) > patience:
			return fmt.Errorf("nothing has happened for %v: %d rows were committed and %d acknowledged; the relay's warnings are above", patience, r.rows, arrived)
		}
		if !outbox.Wait(ctx, 20*time.Millisecond, nil) {
			return context.Cause(ctx)
		}
	}
}

// open returns the least id of a row that is not SENT, -1 when all are, and the reason of one that is FAILED.
func (r *run) open(ctx context.Context) (least int, failed string, err error) {
	least = -1
	query := "SELECT id, status, COALESCE(fail_reason, '') FROM " + quoted(r.opts.Table) + " WHERE status IN (0, 1, 3) ORDER BY id LIMIT 1"
	var status int
	if err := r.db.QueryRowContext(ctx, query).Scan(&least, &status, &failed); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, "", fmt.Errorf("look for rows that are not SENT: %w", err)
	}
	if status != 3 {
		failed = ""
	}
	return least, failed, nil
}

// because prefers why the context ended.
func (r *run) because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
