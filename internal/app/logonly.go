package app

import (
	"context"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// failedRows are the tables and, for those without a status, the failed-message log: what else becomes of their rows is in the journal.
type failedRows struct {
	relay.Rows
	failed checkpoint.FailedLog
}

// Apply implements ack.Tables: a batch is of one table.
func (r failedRows) Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	if len(batch) > 0 && batch[0].LogOnly {
		return nil, r.failed.Append(batch[0].Table, batch)
	}
	return r.Rows.Apply(ctx, batch)
}

// withoutStatus are the names of the tables that have no status.
func withoutStatus(tables []*table.Table) map[string]bool {
	all := map[string]bool{}
	for _, t := range tables {
		if t.LogOnly() {
			all[t.Name()] = true
		}
	}
	return all
}

// logOnly lists such tables as the configuration names them.
func logOnly(cfg *config.Config) (list []string) {
	maps, err := mappings(cfg)
	if err != nil {
		return nil // the start has reported it
	}
	for _, m := range maps {
		if m.LogOnly && m.Columns[table.StatusCode] == "" {
			list = append(list, m.Schema+"."+m.Name)
		}
	}
	return list
}
