package doctor

import (
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// source checks the server and its tables.
func (d *doctor) source(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	settings, err := d.Server()
	if err != nil {
		if !server.HasFault(d.findings) { // a missing file is reported already
			d.add(server.Fault, "source.tls", "correct the files of source.tls", "%v", err)
		}
		return
	}
	db, err := server.Open(settings, nil, server.Session{MaxConns: 1})
	if err != nil {
		d.add(server.Fault, "source", "", "%v", err)
		return
	}
	defer func() {
		if err := db.Close(); err != nil {
			d.add(server.Warning, "source", "", "the connection did not close: %v", err)
		}
	}()
	info, err := server.Inspect(ctx, db)
	if err != nil {
		d.add(server.Fault, "source", ConnectFix(err, d.cfg.Source.User), "%v", err)
		return
	}
	d.account(ctx, db)
	d.encryption(ctx, db, info)
	if info.Reader { // what follows needs a binlog and a server that accepts writes
		d.add(server.Fault, "source", info.Cure(server.Primary), "the server is a reader of an Aurora cluster: it takes no writes and has no binlog")
		return
	}
	if end, err := info.End(ctx, db); err == nil { // without the privilege for it, the finding about grants reports that
		d.identity(info, end)
		d.reach(ctx, db, info)
	}
	d.serverID(ctx, db, info)
	d.clock(ctx, db)
	d.tables(ctx, settings, db)
}

// cloudSQLIssuer is a part of the name of the authorities that Cloud SQL makes for one instance; their certificates name no host.
const cloudSQLIssuer = "Google Cloud SQL Server CA"

// ConnectFix returns how to repair a failed connection of user.
func ConnectFix(err error, user string) string {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var noBinlog *server.NoBinlogError
	switch {
	case errors.As(err, &noBinlog):
		return noBinlog.Cure()
	case errors.As(err, &name) && strings.Contains(name.Certificate.Issuer.CommonName, cloudSQLIssuer):
		return server.CloudSQL.Cure(server.Encryption)
	case errors.As(err, &authority), errors.As(err, &name):
		return "set source.tls.ca to the authority that signed the server's certificate, and source.address to a name in it"
	case server.NoTLS(err):
		return "give the server a certificate (ssl_cert and ssl_key in its configuration, then restart it; a managed server: turn on SSL in its console), or, on a network without other " +
			"users, set source.tls.mode to preferred"
	case server.OldTLS(err):
		return "upgrade the server: it has TLS 1.1 at most, and the relay wants 1.2; or, on a network without other users, set source.tls.mode to disabled"
	case server.Code(err) == 3159: // SECURE_TRANSPORT_REQUIRED, the default of Azure
		return "set source.tls.mode to verify-identity, or at least to required: the server refuses connections in clear (require_secure_transport)"
	case server.Code(err) == 1045, server.Code(err) == 1698:
		return "correct source.user and its password. If both are right, look at the accounts:\n" +
			fmt.Sprintf("SELECT user, host, plugin FROM mysql.user WHERE user IN ('%s', '')\n", user) +
			"An account with this machine's name wins over one with '%', also an anonymous one (user ''): drop that. One that requires TLS needs\n" +
			fmt.Sprintf("source.tls.mode required. Only if there is none: CREATE USER '%s'@'%%' IDENTIFIED BY '...'", user)
	case server.Classify(err) == server.Service:
		return "let the account in from this machine, as the server's answer says; its accounts:\n" +
			fmt.Sprintf("SELECT user, host, account_locked FROM mysql.user WHERE user = '%s'", user)
	}
	return "check source.address, that the server runs and that no firewall is between"
}

// account compares the account of the session with the configured one.
func (d *doctor) account(ctx context.Context, db *sql.DB) {
	var account string
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&account); err != nil {
		d.add(server.Warning, "source.user", "", "the account of the session could not be asked: %v", err)
		return
	}
	name := account[:max(0, strings.LastIndexByte(account, '@'))]
	if name == "" && d.cfg.Source.User != "" {
		d.add(server.Fault, "source.user", fmt.Sprintf("DROP USER ''@'%s'", account[strings.LastIndexByte(account, '@')+1:]),
			"the server uses the anonymous account ''%s instead of '%s': its host is more specific", account[len(name):], d.cfg.Source.User)
	}
}

// encryption reports an unencrypted connection.
func (d *doctor) encryption(ctx context.Context, db *sql.DB, info server.Info) {
	cipher, err := server.Cipher(ctx, db)
	if err != nil {
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
		d.add(server.Warning, "source.tls", info.Cure(server.Encryption), "the connection to another machine is in clear")
	}
}

// identity compares the server with the recorded one.
func (d *doctor) identity(info server.Info, end outbox.Position) {
	if d.held.Checkpoint.IsZero() || d.held.Source == (server.ID{}) {
		return
	}
	switch relation, why := server.CheckIdentity(d.held.Source, d.held.Checkpoint, info, end); relation {
	case server.Foreign:
		d.add(server.Fault, "source", "correct source.address or checkpoint.dir; if the change is intended: canal-outbox checkpoint set --latest",
			"it is not the server of the checkpoint: %s", why)
	case server.Shorter:
		d.add(server.Warning, "source", "", "it lost a part of its log since the checkpoint; a start records a gap and sweeps: %s", why)
	case server.Failover:
		d.add(server.OK, "source", "", "another server with the same history: %s", why)
	default:
		d.add(server.OK, "source", "", "it is the server of the checkpoint %s", d.held.Checkpoint)
	}
}

// binlogRight is the privilege for the list of the binlog's files.
func binlogRight(info server.Info) string {
	if info.Flavor == outbox.MariaDB {
		return "BINLOG MONITOR"
	}
	return "REPLICATION CLIENT"
}

// soon is the part of the retention that must be left.
const soon = 4 // a quarter

// reach reports whether the log still contains the position of the checkpoint, and for how long.
func (d *doctor) reach(ctx context.Context, db *sql.DB, info server.Info) {
	at := d.held.Checkpoint
	if at.IsZero() || server.HasFault(d.findings) {
		return
	}
	why, err := info.Readable(ctx, db, at)
	if err != nil {
		d.notChecked("checkpoint", binlogRight(info), "whether the log still has the checkpoint (%v)", err)
		return
	}
	if why != "" {
		d.add(server.Warning, "checkpoint", "keep the log longer than the longest stop: "+info.Cure(server.KeepLogs),
			"the log does not reach back to the checkpoint (%s): a start records a gap and sweeps the tables, which publishes every PENDING row, without the order of the log", why)
		return
	}
	files, err := server.Files(ctx, db)
	if err != nil || d.running || d.held.At.IsZero() || files[len(files)-1].Name == at.File {
		return // the current file is not purged
	}
	// The checkpoint's file was last written at the checkpoint or later.
	age, fix := time.Since(d.held.At).Round(time.Minute), "start the relay, or keep the log longer: "+info.Cure(server.KeepLogs)
	switch {
	case info.Purge == server.Unset:
		d.add(server.Warning, "checkpoint", fix, "it is %v old, and %s may remove %s at any time: from then on a start finds a gap", age, info.Platform, at.File)
	case info.LogRetention > 0 && info.LogRetention-time.Since(d.held.At) < info.LogRetention/soon:
		d.add(server.Warning, "checkpoint", fix, "it is %v old, and the server purges %s when that is %v old: from then on a start finds a gap", age, at.File, info.LogRetention)
	}
}

// serverID looks for another replica with our id. A running relay would find itself, so this runs only without one.
func (d *doctor) serverID(ctx context.Context, db *sql.DB, info server.Info) {
	own := d.ServerID
	if own == info.ServerID {
		d.add(server.Fault, "source.server_id", "choose another id", "%d is the id of the server itself", own)
		return
	}
	if d.running {
		return
	}
	replicas, err := info.Replicas(ctx, db)
	if err != nil {
		// Not worth a privilege of its own: MariaDB disconnects a second reader with one id, which shows at once.
		right := "REPLICATION SLAVE"
		if info.Flavor == outbox.MariaDB {
			right = "REPLICATION MASTER ADMIN"
		}
		d.notChecked("source.server_id", right, "whether another replica has the id %d (%v)", own, err)
		return
	}
	for _, replica := range replicas {
		if replica.ServerID == strconv.FormatUint(uint64(own), 10) {
			d.add(server.Fault, "source.server_id", "stop the other one, or choose another id", "another replica (%q) uses the id %d", replica.Host, own)
			return
		}
	}
	d.add(server.OK, "source.server_id", "", "%d is free", own)
}

// clock compares the clocks. The relay decides nothing by the difference, but the figures are wrong by it.
func (d *doctor) clock(ctx context.Context, db *sql.DB) {
	offset, err := server.ClockOffset(ctx, db)
	offset = offset.Round(time.Millisecond)
	switch {
	case err != nil:
		d.add(server.Warning, "clock", "", "the server's clock cannot be read: %v", err)
	case offset > time.Second:
		d.add(server.Warning, "clock", "let NTP set both clocks", "the server's clock is %v ahead of this machine's: lag and latency are shown wrong by it", offset)
	case offset < -time.Second:
		d.add(server.Warning, "clock", "let NTP set both clocks", "the server's clock is %v behind this machine's: lag and latency are shown wrong by it", -offset)
	default:
		d.add(server.OK, "clock", "", "the server's differs by %v", offset)
	}
}
