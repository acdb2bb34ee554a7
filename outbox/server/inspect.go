package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Info is what the rest of the relay needs to know about a server, as it was when it was asked. It is a record, one field for each answer; each method
// draws one conclusion.
type Info struct {
	ID
	Version             string // as the server prints it
	Major, Minor, Patch int

	GTID           bool   // transactions get GTIDs: always on MariaDB, gtid_mode=ON on MySQL
	LogBin         bool   // there is a binlog
	BinlogFormat   string // ROW, STATEMENT or MIXED
	RowImage       string // global binlog_row_image: FULL, NOBLOB, MINIMAL or FULL_NODUP
	RowMetadata    string // FULL, MINIMAL or NO_LOG; "" when the server is too old for the variable
	LogReplicas    bool   // transactions that come by replication are in its own binlog
	Replica        bool   // MariaDB: replication from another server runs; not known on MySQL
	ReadOnly       bool
	CaseFolding    int           // lower_case_table_names
	MaxPacket      int           // max_allowed_packet, bytes
	NetWriteLimit  time.Duration // net_write_timeout: a blocked dump is aborted after it
	LogRetention   time.Duration // 0: binlogs are kept until they are purged by hand, unless Purge says otherwise
	SyncBinlog     bool          // sync_binlog=1: a crash of the server loses no committed transaction
	SessionImage   string        // binlog_row_image of the asking session: MINIMAL when a writing pool may set it
	SkipsOwnEvents bool          // MariaDB: skip_replication holds in the asking session

	// Executed is what the identity check compares: MySQL gtid_executed, MariaDB gtid_binlog_state (the last GTID of each
	// domain and server id). "" when the server has none.
	Executed string

	Platform Platform
	Reader   bool // Aurora: an instance that reads the cluster's storage, without writes and without a binlog
	Purge    Purge
}

// String is for logs and errors.
func (id ID) String() string {
	switch {
	case id == ID{}:
		return "unknown server"
	case id.UUID != "":
		return fmt.Sprintf("%s server_uuid %s", id.Flavor, id.UUID)
	}
	return fmt.Sprintf("%s server_id %d", id.Flavor, id.ServerID)
}

// AtLeast compares the version.
func (i Info) AtLeast(major, minor, patch int) bool {
	if i.Major != major {
		return i.Major > major
	}
	if i.Minor != minor {
		return i.Minor > minor
	}
	return i.Patch >= patch
}

// Inspect asks the server of a pool for all of it. It needs no privilege.
func Inspect(ctx context.Context, db *sql.DB) (Info, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return Info{}, fmt.Errorf("inspect the server: %w", err)
	}
	defer conn.Close()
	global, err := queryVariables(ctx, conn, showVariables("GLOBAL", append(markNames(), "server_id", "server_uuid", "gtid_mode", "log_bin",
		"binlog_format", "binlog_row_image", "binlog_row_metadata", "log_slave_updates", "log_replica_updates", "read_only",
		"super_read_only", "lower_case_table_names", "max_allowed_packet", "net_write_timeout", "binlog_expire_logs_seconds",
		"expire_logs_days", "sync_binlog")...))
	if err != nil {
		return Info{}, fmt.Errorf("inspect the server: %w", err)
	}
	info, err := global.info()
	if err != nil {
		return Info{}, fmt.Errorf("inspect the server: %w", err)
	}
	for _, ask := range []func(context.Context, *sql.Conn) error{info.askBinlog, info.askSession, info.askExecuted, info.askPurge} {
		if err := ask(ctx, conn); err != nil {
			return Info{}, fmt.Errorf("inspect the server: %w", err)
		}
	}
	if info.Reader { // the next connection resolves the address again: after a failover it may lead to the old writer for some seconds
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it returns that error
	}
	return info, nil
}

// MariaDB before 11 puts "5.5.5-" in front of its version in the handshake, some proxies also here (A38).
var versionPattern = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)(?:\.(\d+))?`)

// SkipsLocked reports whether a server of that version has SKIP LOCKED and NOWAIT: MySQL 8.0.1, MariaDB 10.6 and newer. It is true of a
// version that cannot be read.
func SkipsLocked(version string) bool {
	var i Info
	if !i.setVersion(version) {
		return true
	}
	if strings.Contains(strings.ToLower(version), "mariadb") {
		return i.AtLeast(10, 6, 0)
	}
	return i.AtLeast(8, 0, 1)
}

func (i *Info) setVersion(version string) (ok bool) {
	match := versionPattern.FindStringSubmatch(version)
	if match == nil {
		return false
	}
	i.Version, i.Major, i.Minor, i.Patch = version, number(match[1]), number(match[2]), number(match[3])
	return true
}

func (v variables) info() (Info, error) {
	id, err := v.id()
	if err != nil {
		return Info{}, err
	}
	i := Info{ID: id}
	if !i.setVersion(v["version"]) {
		return Info{}, fmt.Errorf("the server gives %q as its version", v["version"])
	}
	i.GTID = id.Flavor == outbox.MariaDB || v.on("gtid_mode")
	i.LogBin = v.on("log_bin")
	i.BinlogFormat, i.RowImage, i.RowMetadata = v["binlog_format"], v["binlog_row_image"], v["binlog_row_metadata"]
	if i.BinlogFormat == "" {
		i.BinlogFormat = "ROW" // servers without the variable know nothing else
	}
	i.LogReplicas = v.on("log_slave_updates") || v.on("log_replica_updates")
	i.ReadOnly, i.Platform, i.Reader = v.readOnly(), v.platform(), v.reader()
	i.CaseFolding, i.MaxPacket = number(v["lower_case_table_names"]), number(v["max_allowed_packet"])
	i.NetWriteLimit = time.Duration(number(v["net_write_timeout"])) * time.Second
	i.LogRetention = time.Duration(number(v["binlog_expire_logs_seconds"])) * time.Second
	if i.LogRetention == 0 {
		days, _ := strconv.ParseFloat(v["expire_logs_days"], 64) // absent since 8.4: no retention either
		i.LogRetention = time.Duration(days * float64(24*time.Hour))
	}
	i.SyncBinlog = v["sync_binlog"] == "1"
	return i, nil
}

// number reads a variable that is a number whenever the server has it; 0 otherwise.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// askBinlog finds an OceanBase whose tenant has no Binlog Service: it refuses the statement, for another reason than a missing
// privilege.
func (i *Info) askBinlog(ctx context.Context, conn *sql.Conn) error {
	if i.Platform != OceanBase {
		return nil
	}
	rows, err := Show(ctx, conn, i.endStatement())
	if code := Code(err); err == nil && len(rows) == 0 || code != 0 && !refusal(err) {
		return &NoBinlogError{Platform: i.Platform, Version: i.Version}
	}
	return nil
}

func (i *Info) askSession(ctx context.Context, conn *sql.Conn) error {
	own, err := queryVariables(ctx, conn, showVariables("SESSION", "binlog_row_image", "skip_replication"))
	if err != nil {
		return err
	}
	i.SessionImage, i.SkipsOwnEvents = own["binlog_row_image"], own.on("skip_replication")
	status, err := queryVariables(ctx, conn, "SHOW GLOBAL STATUS WHERE Variable_name = 'Slave_running'")
	if err != nil {
		return err
	}
	i.Replica = status.on("slave_running")
	return nil
}

// askExecuted does not use SHOW VARIABLES, which cuts values at 1024 characters.
func (i *Info) askExecuted(ctx context.Context, conn *sql.Conn) error {
	query := "SELECT @@GLOBAL.gtid_executed"
	if i.Flavor == outbox.MariaDB {
		query = "SELECT @@GLOBAL.gtid_binlog_state"
	}
	if err := conn.QueryRowContext(ctx, query).Scan(&i.Executed); err != nil {
		return err
	}
	i.Executed = strings.Join(strings.Fields(i.Executed), "")
	return nil
}
