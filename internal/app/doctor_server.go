package app

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

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
