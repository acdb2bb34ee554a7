package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// shortRetention is what a binlog should be kept at least: a weekend is better, but a day lets a night pass (A58).
const shortRetention = 24 * time.Hour

// retention judges how long the log is kept.
func (d *doctor) retention(info server.Info) {
	switch kept := info.LogRetention; {
	case kept == 0:
		d.add(server.OK, "binlog retention", "", "binlogs are kept until somebody purges them")
	case kept < shortRetention:
		d.add(server.Warning, "binlog retention", "SET GLOBAL binlog_expire_logs_seconds = 259200, and in the server's configuration",
			"binlogs are kept for %v: a longer stop of this service leaves a gap, which a sweep fills", kept)
	default:
		d.add(server.OK, "binlog retention", "", "binlogs are kept for %v", kept)
	}
}

// encryption tells whether the connection is in clear.
func (d *doctor) encryption(ctx context.Context, db *sql.DB) {
	var name, cipher string
	if err := db.QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil {
		d.add(server.Warning, "source.tls", "", "whether the connection is encrypted could not be asked: %v", err)
		return
	}
	host, _, err := net.SplitHostPort(d.cfg.Source.Address)
	ip := net.ParseIP(host)
	local := err != nil || host == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case cipher != "":
		d.add(server.OK, "source.tls", "", "encrypted with %s", cipher)
	case !local:
		d.add(server.Warning, "source.tls", "give the server a certificate and set source.tls.mode to verify-identity", "the connection to another machine is in clear")
	}
}

// The words by which SHOW GRANTS tells that the log may be read; ALL covers everything.
var replicationGrant = regexp.MustCompile(`(?i)(REPLICATION (SLAVE|REPLICA)\b|ALL PRIVILEGES ON \*\.\*)`)

// rights tries what needs a right of its own. The rights on tables are tried with the tables.
func (d *doctor) rights(ctx context.Context, db *sql.DB, info server.Info) {
	end, err := info.End(ctx, db)
	if err != nil {
		d.add(server.Fault, "grants", d.grant(info), "the end of the binlog cannot be read: %v", err)
	} else {
		d.identity(info, end)
	}
	grants, err := d.grants(ctx, db)
	switch {
	case err != nil:
		d.add(server.Warning, "grants", "", "they cannot be listed: %v", err)
	case !replicationGrant.MatchString(grants):
		d.add(server.Fault, "grants", d.grant(info), "the account may not read the binlog: REPLICATION SLAVE is missing")
	default:
		d.add(server.OK, "grants", "", "the binlog may be read")
	}
}

func (d *doctor) grant(info server.Info) string {
	monitor := "REPLICATION CLIENT"
	if info.Flavor == outbox.MariaDB && info.AtLeast(10, 5, 2) {
		monitor = "BINLOG MONITOR"
	}
	return fmt.Sprintf("GRANT REPLICATION SLAVE, %s ON *.* TO '%s'@'...'", monitor, d.cfg.Source.User)
}

func (d *doctor) grants(ctx context.Context, db *sql.DB) (all string, err error) {
	rows, err := db.QueryContext(ctx, "SHOW GRANTS")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var lines []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return "", err
		}
		lines = append(lines, one)
	}
	return strings.Join(lines, "\n"), rows.Err()
}

// identity compares the server with the recorded one.
func (d *doctor) identity(info server.Info, end outbox.Position) {
	if d.checkpoint.IsZero() {
		return
	}
	switch relation, why := server.CheckIdentity(d.recorded, d.checkpoint, info, end); relation {
	case server.Foreign:
		d.add(server.Fault, "source", "correct source.address or checkpoint.dir; if the change is intended: canal-outbox checkpoint set --latest",
			"it is not the server of the checkpoint: %s", why)
	case server.Shorter:
		d.add(server.Warning, "source", "", "it lost a part of its log since the checkpoint; a start records a gap and sweeps: %s", why)
	case server.Failover:
		d.add(server.OK, "source", "", "another server with the same history: %s", why)
	default:
		d.add(server.OK, "source", "", "it is the server of the checkpoint %s", d.checkpoint)
	}
}

// serverID looks for another replica with our id. A running daemon shows up as itself, so it is asked only without one.
func (d *doctor) serverID(ctx context.Context, db *sql.DB, info server.Info) {
	own := serverID(d.cfg)
	if own == info.ServerID {
		d.add(server.Fault, "source.server_id", "choose another id", "%d is the id of the server itself", own)
		return
	}
	if d.running {
		return
	}
	ids, err := replicaIDs(ctx, db, info)
	if err != nil {
		// Not worth a right of its own: MariaDB throws a second reader with one id off, which shows at once.
		d.add(server.OK, "source.server_id", "", "%d; whether another replica has it could not be asked (%v)", own, err)
		return
	}
	for _, id := range ids {
		if id == strconv.FormatUint(uint64(own), 10) {
			d.add(server.Fault, "source.server_id", "stop the other one, or choose another id", "another replica uses the id %d", own)
			return
		}
	}
	d.add(server.OK, "source.server_id", "", "%d is free", own)
}

// replicaIDs lists the ids of the connected replicas.
func replicaIDs(ctx context.Context, db *sql.DB, info server.Info) (ids []string, err error) {
	statement := "SHOW SLAVE HOSTS"
	if info.Flavor == outbox.MySQL && info.AtLeast(8, 0, 22) {
		statement = "SHOW REPLICAS"
	}
	rows, err := db.QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		ids = append(ids, values[0].String) // Server_Id comes first on all servers
	}
	return ids, rows.Err()
}

// clock compares the clocks. Nothing is decided by the difference, but the figures are wrong by it.
func (d *doctor) clock(ctx context.Context, db *sql.DB) {
	var theirs float64
	before := time.Now()
	if err := db.QueryRowContext(ctx, "SELECT UNIX_TIMESTAMP(NOW(6))").Scan(&theirs); err != nil {
		d.add(server.Warning, "clock", "", "the server's clock cannot be read: %v", err)
		return
	}
	ours := before.Add(time.Since(before) / 2)
	offset := time.Duration((theirs - float64(ours.UnixMicro())/1e6) * float64(time.Second)).Round(time.Millisecond)
	if math.Abs(offset.Seconds()) > 1 {
		d.add(server.Warning, "clock", "let NTP set both clocks", "the server's clock is %v ahead of ours: lag and latency are shown wrong by it", offset)
		return
	}
	d.add(server.OK, "clock", "", "the server's differs by %v", offset)
}

// writing opens a connection as the acknowledgements do and looks at what it was allowed to set.
func (d *doctor) writing(ctx context.Context, settings server.Config) {
	db, err := server.Open(settings, nil, server.Session{Writes: true, MaxConns: 1})
	if err != nil {
		d.add(server.Fault, "source", "", "%v", err)
		return
	}
	info, err := server.Inspect(ctx, db)
	if err = errors.Join(err, db.Close()); err != nil {
		d.add(server.Fault, "source", "", "a connection for writing: %v", err)
		return
	}
	if strings.EqualFold(info.SessionImage, "MINIMAL") {
		d.add(server.OK, "binlog_row_image", "", "status updates are logged with the changed columns only")
		return
	}
	right := "SESSION_VARIABLES_ADMIN"
	if info.Flavor == outbox.MariaDB {
		right = "BINLOG ADMIN"
	}
	d.add(server.Warning, "binlog_row_image", fmt.Sprintf("GRANT %s ON *.* TO '%s'@'...'", right, d.cfg.Source.User),
		"the account may not set it to MINIMAL for its own statements: each status update writes the message's body into the log twice")
}
