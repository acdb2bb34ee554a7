package app

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// inspectSource looks at the server and binds the mapped tables. Everything that is wrong comes as a finding; an error
// means that the server could not be asked.
func inspectSource(ctx context.Context, cfg *config.Config, db *sql.DB) ([]*table.Table, []server.Finding, error) {
	info, err := server.Inspect(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	findings := inspectLog(info)
	maps, err := mappings(cfg.Tables)
	if err != nil {
		return nil, nil, err
	}
	var tables []*table.Table
	for _, m := range maps {
		t, found, err := table.Load(ctx, db, m)
		if err != nil {
			return nil, nil, err
		}
		findings = append(findings, found...)
		if t != nil {
			tables = append(tables, t)
		}
	}
	return tables, findings, nil
}

// inspectLog judges the settings of the binlog.
func inspectLog(info server.Info) []server.Finding {
	var out []server.Finding
	add := func(s server.Severity, subject, what, mend string) {
		out = append(out, server.Finding{Severity: s, Subject: subject, What: what, Mend: mend})
	}
	if !info.LogBin {
		add(server.Fault, "log_bin", "the server writes no binlog: there is nothing to follow", "start the server with log_bin")
		return out
	}
	if info.BinlogFormat != "ROW" {
		add(server.Fault, "binlog_format", fmt.Sprintf("is %s: statements show no rows", info.BinlogFormat), "SET GLOBAL binlog_format = 'ROW'")
	}
	if info.RowMetadata != "FULL" {
		add(server.Warning, "binlog_row_metadata", "is not FULL: columns are named by the table's present definition, and rows from "+
			"before a change of it are left to the sweep", "SET GLOBAL binlog_row_metadata = 'FULL'")
	}
	if !info.GTID {
		add(server.Warning, "gtid_mode", "is off: a failover to another server cannot be followed", "enable gtid_mode")
	}
	if !info.SyncBinlog {
		add(server.Warning, "sync_binlog", "is not 1: a crash of the server may lose transactions that were published", "SET GLOBAL sync_binlog = 1")
	}
	if info.ReadOnly {
		add(server.Fault, "read_only", "the server takes no writes: statuses cannot be written back", "name the primary as source.address")
	}
	return out
}
