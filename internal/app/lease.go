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

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
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

// tenure is the process's part in the lease, over all daemons that the process makes one after the other.
type tenure struct {
	db    *sql.DB // nil without a lease
	name  string  // of the lease table
	lease *lease.Lease
}

// close lets another process continue, also when a daemon ended before it was complete.
func (t *tenure) close() error {
	if t.db == nil {
		return nil
	}
	var err error
	if t.lease != nil {
		err = t.lease.Release(context.Background(), lease.Resume{})
	}
	_ = t.db.Close() // the error of a connection that broke earlier is no failure of this run
	return err
}

// findLease checks once in the life of a process whether the process can use a lease. When the table is dropped or the privilege
// revoked later, no relay continues without the lease: the other relays may not see that.
func (d *daemon) findLease(ctx context.Context, tables []string) error {
	t := d.tenure
	if t.db != nil || t.lease != nil {
		return nil
	}
	name, ddl, err := LeaseTable(d.cfg, tables[0])
	if err != nil {
		return err
	}
	if name == "" || d.opts.Shadow { // which publishes nothing
		t.lease = lease.Alone(lease.Off, "")
		return nil
	}
	db, err := server.Open(d.source, nil, server.Session{Writes: true, Replicated: true, MaxConns: 2})
	if err != nil {
		return err
	}
	var found server.Finding
	err = relay.UntilAnswered(ctx, d.log, func() (err error) {
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
		d.log.Warn("running without a lease: "+found.What, zap.String("fix", found.Fix))
		t.lease = lease.Alone(lease.Solo, found.What)
		return nil
	}
	db.SetConnMaxLifetime(3 * d.cfg.Lease.Time) // so that it follows an address that moves to another server
	t.db, t.name = db, name
	return nil
}

// joinLease makes the process's part, once the state directory is this process's.
func (d *daemon) joinLease() {
	t := d.tenure
	if t.lease == nil {
		holder, host := d.identity()
		t.lease = lease.New(lease.Config{Time: d.cfg.Lease.Time, Holder: holder, Boot: boot(), Host: host}, lease.NewTable(t.db, t.name), d.log.Named("lease"))
	}
	t.lease.Register(d.registry)
}

// identity is that of the state directory, the same over restarts, and where it is. A copy of the directory on another machine is
// another one.
func (d *daemon) identity() (holder, host string) {
	dir, err := filepath.Abs(d.cfg.Checkpoint.Dir)
	if err != nil {
		dir = d.cfg.Checkpoint.Dir // without a working directory the text itself must do
	}
	name, err := os.Hostname()
	if err != nil {
		name = "unknown host" // the directory's birth distinguishes two relays
	}
	host = name + ":" + dir
	hash := sha256.Sum256([]byte(host + "\x00" + d.state.Origin().CreatedAt.Format(time.RFC3339Nano)))
	return hex.EncodeToString(hash[:16]), host
}

// boot is the start of this machine; "" where the system does not tell it.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // not Linux
	}
	return strings.ReplaceAll(strings.TrimSpace(string(id)), "-", "")
}

// may is the fence of the sinks; nil without a lease.
func (d *daemon) may() func() bool {
	if d.tenure.db == nil {
		return nil
	}
	return d.turn.May
}

// lead takes the lease, or says by a *standbyError that another process is active, or may be.
func (d *daemon) lead(ctx context.Context, tables []string) error {
	_, hasCheckpoint := d.state.Checkpoint()
	t := &d.turn
	t.Lease, t.State, t.Source, t.Log = d.tenure.lease, d.state, d.asker(), d.log
	t.Accept = d.opts.AcceptNewSource
	t.Lost = d.state.Origin().Quarantined != "" && !hasCheckpoint
	if d.tenure.db != nil {
		t.Left = d.left
	}
	held, err := t.Take(ctx, tables)
	if err == nil && !held {
		return &standbyError{tables}
	}
	return err
}

// keepLease renews until ctx ends. When another process has taken over it marks the daemon as outdated and calls stop.
func (d *daemon) keepLease(ctx context.Context, stop context.CancelCauseFunc) {
	if err := d.turn.Keep(ctx); err != nil {
		d.outdated.Store(true)
		stop(err)
	}
}

// hold pauses or resumes the relay, and every relay that takes over from it.
func (d *daemon) hold(p *outbox.Pause) error {
	if err := d.relay.Hold(p); err != nil {
		return err
	}
	d.turn.Tell(context.Background())
	return nil
}

// release lets another process continue at once, unless this one is about to start again by itself. No message is in flight to
// the broker any more.
func (d *daemon) release() {
	if !d.outdated.Load() {
		d.leaveLast()
		d.turn.Release()
	}
}

// Fence is a sink that takes nothing while may is false. What it has taken before it sends only after it has asked sink.Limits.May.
func Fence(s sink.Sink, may func() bool) sink.Sink { return fenced{s, may} }

// fenced is a sink that takes nothing while the lease is not valid.
type fenced struct {
	sink.Sink
	may func() bool
}

// unfenced is the sink itself, for what does not send.
func unfenced(s sink.Sink) sink.Sink {
	if f, is := s.(fenced); is {
		return f.Sink
	}
	return s
}

// Send implements sink.Sink.
func (f fenced) Send(batch []*outbox.Message, done func([]sink.Result)) {
	if f.may() {
		f.Sink.Send(batch, done)
		return
	}
	results := make([]sink.Result, len(batch))
	for i, m := range batch {
		results[i] = sink.Result{Message: m, Outcome: outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: sink.ErrMayNot.Error()}}
	}
	go done(results) // the caller may hold a lock that done needs
}

// Probe implements sink.Sink.
func (f fenced) Probe(ctx context.Context) error {
	if !f.may() {
		return sink.ErrMayNot
	}
	return f.Sink.Probe(ctx)
}

// LongestDelay implements sink.Delayer.
func (f fenced) LongestDelay() time.Duration {
	if d, can := f.Sink.(sink.Delayer); can {
		return d.LongestDelay()
	}
	return 0
}
