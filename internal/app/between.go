package app

import (
	"context"
	"database/sql"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// between reads a part of the log that lies in the past, see canal.Between.
func between(cfg *config.Config, source server.Config, tables []*table.Table, schemas canal.SchemaStore) func(context.Context, outbox.Position, outbox.Position, func(*outbox.Txn) error) error {
	reading := canal.Config{Server: source, Tables: tables, MaxTransactionBytes: int(cfg.Pipeline.MaxTransactionBytes), Schemas: schemas}
	return func(ctx context.Context, from, to outbox.Position, each func(*outbox.Txn) error) error {
		return canal.Between(ctx, reading, from, to, each)
	}
}

// lateTables are the tables of a configuration for a command without a daemon: they are bound when they are needed, once. They have
// the methods that an operator is given.
type lateTables struct {
	cfg     *config.Config
	source  server.Config
	db      *sql.DB
	schemas canal.SchemaStore

	tables []*table.Table // nil: not bound yet
	rows   tableRows
}

func (l *lateTables) bind(ctx context.Context) (err error) {
	if l.tables != nil {
		return nil
	}
	if l.tables, err = bound(ctx, l.db, l.cfg); err == nil {
		l.rows = rowsOf(l.db, l.tables, nil, nil)
	}
	return err
}

func (l *lateTables) counts(ctx context.Context) ([]query.Counts, error) {
	if err := l.bind(ctx); err != nil {
		return nil, err
	}
	return l.rows.Counts(ctx)
}

func (l *lateTables) states(ctx context.Context, rows []outbox.Identity) ([]outbox.Candidate, error) {
	if err := l.bind(ctx); err != nil {
		return nil, err
	}
	return l.rows.States(ctx, rows)
}

func (l *lateTables) between(ctx context.Context, from, to outbox.Position, each func(*outbox.Txn) error) error {
	if err := l.bind(ctx); err != nil {
		return err
	}
	return between(l.cfg, l.source, l.tables, l.schemas)(ctx, from, to, each)
}
