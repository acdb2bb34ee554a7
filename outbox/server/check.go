package server

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// shortRetention is what a stop over a night needs at least (A58).
const shortRetention = 24 * time.Hour

// Check looks at the settings that the relay depends on. Info must be of a writing pool for the findings about our own
// updates to be true. It needs the privilege of End; without it the findings that need none come with the error.
func (i Info) Check(ctx context.Context, db *sql.DB) ([]Finding, error) {
	var account string
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&account); err != nil {
		return nil, fmt.Errorf("check the server: %w", err)
	}
	filters, err := i.filters(ctx, db)
	return append(i.check(account), filters...), err
}

// CheckSettings is Check without what concerns the asking session: for looks while the relay runs. Only faults and warnings are returned.
func (i Info) CheckSettings(ctx context.Context, db *sql.DB) ([]Finding, error) {
	filters, err := i.filters(ctx, db)
	if err != nil {
		return nil, err
	}
	all := append(i.settings(), filters...)
	return slices.DeleteFunc(all, func(f Finding) bool { return f.Severity != Fault && f.Severity != Warning }), nil
}

// filters says which schemas the binlog leaves out.
func (i Info) filters(ctx context.Context, db *sql.DB) (findings []Finding, err error) {
	if !i.LogBin || i.Reader {
		return nil, nil
	}
	status, err := Show(ctx, db, i.endStatement())
	if err != nil {
		return nil, fmt.Errorf("check the server: %w", err)
	}
	for _, row := range status {
		for _, filter := range []string{"binlog_do_db", "binlog_ignore_db"} {
			if row[filter] != "" {
				findings = append(findings, Finding{
					Severity: Warning, Subject: "server." + filter,
					What: fmt.Sprintf("the binlog is filtered (%s): rows of schemas that are left out are published by the sweep only", row[filter]),
					Fix:  i.Cure(LogFilter),
				})
			}
		}
	}
	return findings, nil
}

// check is Check without I/O.
func (i Info) check(account string) []Finding {
	if !i.LogBin || i.Reader {
		return i.settings()
	}
	return append(i.settings(), i.checkSession(account)...)
}

// settings are the findings about the server itself.
func (i Info) settings() []Finding {
	var out []Finding
	add := func(when bool, severity Severity, subject, what, fix string) {
		if when {
			out = append(out, Finding{Severity: severity, Subject: "server." + subject, What: what, Fix: fix})
		}
	}
	add(true, OK, "version", fmt.Sprintf("%s, version %s%s", i.ID, i.Version, i.on()), "")
	cure := i.Cure
	if i.Reader {
		add(true, Fault, "innodb_read_only", "the server is a reader of the cluster: it takes no writes and has no binlog", cure(Primary))
		return out
	}
	if !i.LogBin {
		add(true, Fault, LogBin, "the server writes no binlog: only the sweep would publish", cure(LogBin))
		return out
	}
	add(i.ReadOnly, Fault, "read_only", "the server is read-only: no status can be written", cure(Primary))
	add(i.BinlogFormat == "STATEMENT", Fault, BinlogFormat, "the binlog holds statements, not rows: only the sweep would publish", cure(BinlogFormat))
	add(i.BinlogFormat == "MIXED", Warning, BinlogFormat, "some rows may be logged as statements: those are published by the sweep only", cure(BinlogFormat))
	add(i.RowMetadata != "FULL", Warning, RowMetadata, "rows carry no column names: they are known by the statements in the log that change a table; behind one that is not understood rows are left to the sweep", cure(RowMetadata))
	add(!i.GTID, Warning, GTIDMode, "without GTIDs another server is accepted after a failover only if the lease table was copied to it, with a gap and a sweep; any other is refused until an operator decides", cure(GTIDMode))
	add(!i.SyncBinlog, Warning, SyncBinlog, "a crash of the server may lose transactions whose messages were published already", cure(SyncBinlog))
	add(i.Replica && !i.LogReplicas, Fault, LogSlaveUpdates, "the server is a replica that does not log what it replicates: its binlog has no rows of the primary",
		cure(LogSlaveUpdates))
	add(i.Flavor == outbox.MySQL && !i.LogReplicas, Warning, LogReplicaUpdates, "if this server is or becomes a replica, its binlog has no rows of the primary",
		cure(LogReplicaUpdates))
	if kept, short := i.retention(); short {
		out = append(out, kept)
	}
	add(i.RowImage == "MINIMAL", Warning, RowImage, "inserts are logged without the columns that they leave to a default: such rows are published by the sweep", cure(RowImage))
	return out
}

// checkSession says what our own statements cost on this server, and that the account may not narrow its own updates.
func (i Info) checkSession(account string) (out []Finding) {
	if !SkipsLocked(i.Version) {
		out = append(out, Finding{
			Severity: Warning, Subject: "server.skip_locked",
			What: "this release has no SKIP LOCKED: statuses are written 20 rows at a time, a row that another session has locked is waited for, up to a " +
				"few seconds, and the application's transaction that waits for one of the 20 may be ended by a deadlock (1213)",
			Fix: "nothing on this release, if applications repeat a transaction after 1213; MySQL 8.0.1 and MariaDB 10.6 have SKIP LOCKED",
		})
	}
	if i.SessionImage == "MINIMAL" {
		return out
	}
	return append(out, Finding{
		Severity: Warning, Subject: "server.binlog_row_image",
		What: fmt.Sprintf("our status updates are logged with row image %s: each writes the whole row to the binlog, with FULL twice, "+
			"body included", i.SessionImage),
		Fix: i.sessionRight(Probe{Privileges: cmp.Or(i.Narrowing(), "SUPER"), On: "*.*"}.Grant(account)),
	})
}
