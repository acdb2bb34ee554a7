package app

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// replica returns the sweep's candidates from the server of fallback.read_from. It reads its tables with the first query, so that a start
// does not wait for it, and again after an error: its indexes are its own.
type replica struct {
	db     *sql.DB
	tables []*table.Table // as the primary has them
	waits  table.Waits

	mu    sync.Mutex
	store *store.Store // nil until the tables were looked at
}

// replicaConfig is how to connect to the server of fallback.read_from.
func replicaConfig(cfg *config.Config) (server.Config, error) {
	source := cfg.Source
	source.Address = cfg.Fallback.ReadFrom
	return serverConfig(source)
}

// openReplica opens a pool to the server of fallback.read_from; nil without one. It connects to nothing yet.
func (in *instance) openReplica(tables []*table.Table) (*replica, error) {
	if in.cfg.Fallback.ReadFrom == "" {
		return nil, nil
	}
	source, err := replicaConfig(in.cfg)
	if err != nil {
		return nil, err
	}
	db, err := server.Open(source, nil, server.Session{MaxConns: 2}) // for the sweep and the retention
	if err != nil {
		return nil, err
	}
	in.onClose(closing(db))
	return &replica{db: db, tables: tables, waits: in.state.Waits}, nil
}

// Due implements fallback.Candidates.
func (r *replica) Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	store, err := r.open(ctx)
	if err != nil {
		return nil, after, err
	}
	page, next, err := store.Due(ctx, name, after, q)
	if err != nil {
		r.mu.Lock()
		r.store = nil
		r.mu.Unlock()
	}
	return page, next, err
}

// Lag implements retention.Replica.
func (r *replica) Lag(ctx context.Context) (lag time.Duration, following bool, err error) {
	return server.ReplicaLag(ctx, r.db)
}

func (r *replica) open(ctx context.Context) (*store.Store, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store != nil {
		return r.store, nil
	}
	found := make([]*table.Table, len(r.tables))
	for i, t := range r.tables {
		var err error
		if found[i], err = t.LoadFrom(ctx, r.db); err != nil {
			return nil, fmt.Errorf("look at the tables of the replica: %w", err)
		}
	}
	r.store = store.New(r.db, found, r.waits, nil)
	return r.store, nil
}
