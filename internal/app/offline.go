package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/history"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Offline is the operator's service without a running relay: on the state directory, which no relay uses, and the database.
type Offline struct {
	operator.Operator
	cfg    *config.Config
	source server.Config
	state  *checkpoint.Store // nil where there is none yet
	db     *sql.DB

	tables []*table.Table // nil: not bound yet
	rows   operatorRows
}

// OpenOffline opens the state directory of a configuration and a pool to its server, which is dialled when it is needed. It is refused
// while another process uses the directory. It creates no state: without one it is refused too if the command needs the state, and
// otherwise serves messages alone.
func OpenOffline(ctx context.Context, cfg *config.Config, needsState bool) (_ *Offline, err error) {
	o := &Offline{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	switch _, err := os.Stat(filepath.Clean(cfg.Checkpoint.Dir)); {
	case err == nil:
		if err := o.openState(ctx); err != nil {
			return nil, err
		}
	case needsState && errors.Is(err, os.ErrNotExist):
		return nil, operator.NotFoundf("there is no state in %s: is checkpoint.dir right? It is made by the first `canal-outbox run`", cfg.Checkpoint.Dir)
	case needsState:
		return nil, err
	}
	if o.source, err = serverConfig(cfg.Source); err != nil {
		return nil, err
	}
	if o.db, err = OpenDatabase(cfg); err != nil {
		return nil, err
	}
	o.Ask, o.Between, o.Tables, o.LogOnly = &asker{db: o.db, source: o.source}, o.between, o.bind, logOnly(cfg)
	o.ClaimTimeout, o.Interval = cfg.Fallback.ClaimTimeout, cfg.Fallback.Interval
	o.Broker = func() (sink.Reader, func(), error) { return openReader(cfg) }
	return o, nil
}

func (o *Offline) openState(ctx context.Context) (err error) {
	o.state, err = checkpoint.OpenContext(ctx, o.cfg.Checkpoint.Dir, checkpoint.Options{})
	if errors.Is(err, checkpoint.ErrLocked) {
		return operator.Refusedf("%v", err)
	}
	if err != nil {
		return err
	}
	state := operatorState{o.state}
	o.State, o.Record, o.Past, o.Hold = state, state.record, o.past, o.state.SetPause
	o.Move = func(_ context.Context, id server.ID, to outbox.Position, reason string) error {
		return o.state.Reset(id, to, 0, reason)
	}
	kept := newNotes(o.cfg.Checkpoint.Dir, "none: without a running relay", zap.NewNop())
	o.Noted, o.Note = kept.of, kept.person
	return nil
}

// bind binds the tables when they are needed, once.
func (o *Offline) bind(ctx context.Context) (operator.Rows, error) {
	if o.tables != nil {
		return o.rows, nil
	}
	tables, err := bound(ctx, o.db, o.cfg)
	if err != nil {
		return nil, err
	}
	var waits table.Waits // of rows whose table has no columns for them
	if o.state != nil {
		waits = o.state.Waits
	}
	o.tables, o.rows = tables, operatorRows{rowsOf(o.db, tables, waits, nil), o.cfg.Retry.FailedEvery, o.forgetSent}
	return o.rows, nil
}

func (o *Offline) between(ctx context.Context, from, to outbox.Position, each func(*outbox.Txn) error) error {
	if _, err := o.bind(ctx); err != nil {
		return err
	}
	return between(o.cfg, o.source, o.tables, o.state.Schemas)(ctx, from, to, each)
}

// past is what the relay recorded that used the directory last.
func (o *Offline) past(span operator.Span) (operator.Timeline, error) {
	past, moves := history.NewRecorder(), pastMoves{}
	if err := past.Keep(o.state.Past, zap.NewNop()); err != nil {
		return operator.Timeline{}, err
	}
	marks, err := moves.read(o.State.History)
	return past.Timeline(span, marks), err
}

// Close releases the directory and the database.
func (o *Offline) Close() (err error) {
	if o.db != nil {
		_ = o.db.Close() // the error of a connection that broke earlier is no failure of this run
	}
	if o.state != nil {
		err = o.state.Close()
	}
	return err
}

// OpenDatabase opens a pool to the configured server for commands that work on it once. Nothing is dialled before its
// first use.
func OpenDatabase(cfg *config.Config) (*sql.DB, error) {
	source, err := serverConfig(cfg.Source)
	if err != nil {
		return nil, err
	}
	return server.Open(source, nil, server.Session{MaxConns: 1})
}

// OpenForStatements is OpenDatabase for an administrator's statements: one that changes a large table may answer after hours.
func OpenForStatements(cfg *config.Config) (*sql.DB, error) {
	source, err := serverConfig(cfg.Source)
	if err != nil {
		return nil, err
	}
	source.IOTimeout = longStatement
	return server.Open(source, nil, server.Session{MaxConns: 1})
}

// longStatement bounds what a lost connection costs; a person can end the wait earlier.
const longStatement = 24 * time.Hour

// bound binds the tables of a configuration; a fault of one is an error.
func bound(ctx context.Context, db *sql.DB, cfg *config.Config) (all []*table.Table, err error) {
	maps, err := mappings(cfg)
	if err != nil {
		return nil, err
	}
	maps, findings, err := table.Expand(ctx, db, maps)
	if err != nil {
		return nil, err
	}
	if len(findings) > 0 {
		return nil, fmt.Errorf("%s: %s; see canal-outbox doctor", findings[0].Subject, findings[0].What)
	}
	for _, m := range maps {
		t, findings, err := table.Load(ctx, db, m)
		if err != nil {
			return nil, err
		}
		if t == nil {
			fault := findings[slices.IndexFunc(findings, func(f server.Finding) bool { return f.Severity == server.Fault })]
			return nil, fmt.Errorf("%s: %s; see canal-outbox doctor", fault.Subject, fault.What)
		}
		all = append(all, t)
	}
	return all, nil
}

// operatorState is the store with its entries in the operator's form.
type operatorState struct{ *checkpoint.Store }

// History implements operator.State.
func (s operatorState) History() (out []operator.HistoryEntry, err error) {
	entries, err := s.Store.History()
	for _, e := range entries {
		out = append(out, operator.HistoryEntry{Number: e.Number, At: e.At, Position: e.Position, Source: e.Source.String(), Reason: e.Reason})
	}
	return out, err
}

// Changes implements operator.State.
func (s operatorState) Changes() (out []operator.Change, err error) {
	changes, err := s.Store.Changes.All()
	for _, c := range changes {
		out = append(out, operator.Change(c))
	}
	return out, err
}

// record writes a change down, see operator.Operator.
func (s operatorState) record(c *operator.Change) error {
	change := checkpoint.Change(*c)
	err := s.Store.Changes.Add(&change)
	c.Number = change.Number
	return err
}

// AckGap implements operator.State.
func (s operatorState) AckGap(id uint64) (known bool, err error) {
	err = s.Store.AckGap(id)
	if errors.Is(err, checkpoint.ErrUnknownGap) {
		return false, nil
	}
	return true, err
}
