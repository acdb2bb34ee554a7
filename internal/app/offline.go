package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/history"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Offline is the operator's access to a state directory that no daemon uses.
type Offline struct {
	operator.Operator
	state *checkpoint.Store
	db    *sql.DB
}

// OpenOffline opens the store of a configuration and a pool to its server, which is dialled when it is needed. It is
// refused while another process has the store open, and when there is no store: looking must not make one.
func OpenOffline(cfg *config.Config) (*Offline, error) {
	if _, err := os.Stat(filepath.Clean(cfg.Checkpoint.Dir)); errors.Is(err, os.ErrNotExist) {
		return nil, operator.NotFoundf("there is no state in %s: is checkpoint.dir right? It is made by the first `canal-outbox run`", cfg.Checkpoint.Dir)
	}
	state, err := checkpoint.OpenContext(context.Background(), cfg.Checkpoint.Dir, checkpoint.Options{})
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil, operator.Refusedf("%v", err)
	}
	if err != nil {
		return nil, err
	}
	source, err := serverConfig(cfg.Source)
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	db, err := OpenDatabase(cfg)
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	move := func(_ context.Context, id server.ID, to outbox.Position, reason string) error {
		return state.Reset(id, to, 0, reason)
	}
	tables := &lateTables{cfg: cfg, source: source, db: db, schemas: state}
	return &Offline{
		Operator: operator.Operator{
			State: operatorState{state}, Ask: &asker{db: db, source: source}, Move: move, Hold: state.SetPause, Count: tables.counts,
			Record:  operatorState{state}.record,
			Between: tables.between, States: tables.states, LogOnly: logOnly(cfg),
		},
		state: state, db: db,
	}, nil
}

// Timeline is what the relay recorded that used the directory last.
func (o *Offline) Timeline(_ context.Context, span operator.Span) (operator.Timeline, error) {
	past, moves := history.NewRecorder(), pastMoves{}
	if err := past.Keep(o.state, zap.NewNop()); err != nil {
		return operator.Timeline{}, err
	}
	marks, err := moves.read(operatorState{o.state}.History)
	return past.Timeline(span, marks), err
}

// Close releases the directory.
func (o *Offline) Close() error { return errors.Join(o.db.Close(), o.state.Close()) }

// OpenDatabase opens a pool to the configured server for commands that work on it once. Nothing is dialled before its
// first use.
func OpenDatabase(cfg *config.Config) (*sql.DB, error) {
	source, err := serverConfig(cfg.Source)
	if err != nil {
		return nil, err
	}
	return server.Open(source, nil, server.Session{MaxConns: 1})
}

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
	changes, err := s.Store.Changes()
	for _, c := range changes {
		out = append(out, operator.Change(c))
	}
	return out, err
}

// record writes a change down, see operator.Operator.
func (s operatorState) record(c *operator.Change) error {
	change := checkpoint.Change(*c)
	err := s.AddChange(&change)
	c.Number = change.Number
	return err
}

// begin is operator.Begin for the messages.
func (s operatorState) begin(ctx context.Context, what, before string) (func(string, error) error, error) {
	return operator.Begin(ctx, s.record, what, before)
}

// AckGap implements operator.State.
func (s operatorState) AckGap(id uint64) (known bool, err error) {
	err = s.Store.AckGap(id)
	if errors.Is(err, checkpoint.ErrUnknownGap) {
		return false, nil
	}
	return true, err
}
