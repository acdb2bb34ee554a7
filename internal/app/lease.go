package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// leaseName is the name of the lease table when none is configured.
const leaseName = "canal_outbox_lease"

// LeaseTable is the name of the lease table of a configuration and the statement that makes it; "" when there is to be none. first is
// a table of the first entry of tables.
func LeaseTable(cfg *config.Config, first string) (name, ddl string, err error) {
	if !cfg.Lease.Enabled {
		return "", "", nil
	}
	schema, _, _ := table.SplitName(first)
	name = cmp.Or(cfg.Lease.Table, schema+"."+leaseName)
	ddl, err = migrations.DDL("lease", name)
	return name, ddl, err
}

// processLease is the process's part in the lease, over all instances that the process makes one after the other.
type processLease struct {
	db       *sql.DB // nil without a lease
	name     string  // of the lease table
	lease    *lease.Lease
	sentRows sentRows
}

// close lets another process continue, also when an instance ended before it was complete.
func (l *processLease) close() error {
	if l.db == nil {
		return nil
	}
	var err error
	if l.lease != nil {
		err = l.lease.Release(context.Background(), lease.Resume{})
	}
	_ = l.db.Close() // the error of a connection that broke earlier is no failure of this run
	return err
}

// find checks once in the life of a process whether the process can use a lease. When the table is dropped or the privilege
// revoked later, no relay continues without the lease: the other relays may not see that.
func (l *processLease) find(ctx context.Context, p *process, source server.Config, tables []string) error {
	if l.db != nil || l.lease != nil {
		return nil
	}
	name, ddl, err := LeaseTable(p.cfg, tables[0])
	if err != nil {
		return err
	}
	if name == "" || p.opts.Shadow { // which publishes nothing
		l.lease = lease.Alone(lease.Off, "")
		return nil
	}
	db, err := server.Open(source, nil, server.Session{Writes: true, Replicated: true, MaxConns: 2})
	if err != nil {
		return err
	}
	var found server.Finding
	err = relay.UntilAnswered(ctx, p.log, func() (err error) {
		found, err = lease.Check(ctx, db, name, ddl)
		return err
	})
	if err != nil || found.Severity != server.OK {
		_ = db.Close() // the error says more
	}
	switch {
	case err != nil:
		return err
	case found.Severity != server.OK:
		p.log.Warn("running without a lease: "+found.What, zap.String("fix", found.Fix))
		l.lease = lease.Alone(lease.Solo, found.What)
		return nil
	}
	db.SetConnMaxLifetime(3 * p.cfg.Lease.Time) // so that it follows an address that moves to another server
	l.db, l.name = db, name
	return nil
}

// join returns the process's lease, and makes it once the state directory, which was created at a time, is this process's.
func (l *processLease) join(p *process, created time.Time, registry prometheus.Registerer) *lease.Lease {
	if l.lease == nil {
		holder, host := identity(p.cfg, created)
		rows := lease.NewTable(l.db, l.name)
		l.lease = lease.New(lease.Config{Time: p.cfg.Lease.Time, Holder: holder, Boot: boot(), Host: host}, rows, p.log.Named("lease"))
		l.sentRows = sentRows{rows, holder}
	}
	l.lease.Register(registry)
	return l.lease
}

// sentRows implements relay.SentRows.
type sentRows struct {
	table  *lease.Table
	holder string
}

// Leave implements relay.SentRows.
func (s sentRows) Leave(ctx context.Context, sent lease.SentRows) error {
	return s.table.Leave(ctx, s.holder, sent)
}

// Left implements relay.SentRows.
func (s sentRows) Left(ctx context.Context, tables []string) (lease.SentRows, error) {
	return s.table.Left(ctx, s.holder, tables)
}

// Forget implements relay.SentRows.
func (s sentRows) Forget(ctx context.Context) error { return s.table.Forget(ctx) }

// identity is that of the state directory, the same over restarts, and where it is. A copy of the directory on another machine is
// another one.
func identity(cfg *config.Config, created time.Time) (holder, host string) {
	name, dir := place(cfg)
	host = cmp.Or(name, "unknown host") + ":" + dir // the directory's birth distinguishes two relays
	hash := sha256.Sum256([]byte(host + "\x00" + created.Format(time.RFC3339Nano)))
	return hex.EncodeToString(hash[:16]), host
}

// place is this host, "" if it has no name, and the state directory.
func place(cfg *config.Config) (host, dir string) {
	dir, err := filepath.Abs(cfg.Checkpoint.Dir)
	if err != nil {
		dir = cfg.Checkpoint.Dir // without a working directory the text itself must do
	}
	if host, err = os.Hostname(); err != nil {
		host = ""
	}
	return host, dir
}

// boot is the start of this machine; "" where the system does not say it.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // not Linux
	}
	return strings.ReplaceAll(strings.TrimSpace(string(id)), "-", "")
}
