package app

import (
	"context"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox"
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
