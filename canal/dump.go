package canal

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// netWriteTimeout is how long the server waits while the reader holds the stream back (A15).
const netWriteTimeout = 600 * time.Second

func (s *stream) config(cfg Config, p serverState, from outbox.Position, w *streamDialer, events replication.EventHandler) replication.BinlogSyncerConfig {
	c := replication.BinlogSyncerConfig{
		ServerID: cfg.ServerID, Flavor: string(p.info.Flavor),
		Host: cfg.Server.Address, User: cfg.Server.User, Password: cfg.Server.Password.Get(),
		TLSConfig: cfg.Server.TLS.Config(), Localhost: s.name,
		HeartbeatPeriod: heartbeatPeriod(p.info.Flavor, cfg.Heartbeat), Dialer: w.dial,
		DisableRetrySync: true, DiscardGTIDSet: true, EventCacheCount: 1, PayloadDecoderConcurrency: 1,
		SynchronousEventHandler: events, RawModeEnabled: s.raw || s.sieve != nil,
		RowsEventDecodeFunc: headerOnly, TableMapOptionalMetaDecodeFunc: noMetadata,
		Option: func(conn *client.Conn) error { return s.prepare(conn, p.info, from) },
		Logger: slog.New(slog.DiscardHandler), // relevant problems are returned as errors
	}
	if !p.encrypted { // mode preferred, and the server has no TLS
		c.TLSConfig = nil
	}
	if host, port, err := net.SplitHostPort(cfg.Server.Address); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			c.Host, c.Port = host, uint16(n)
		}
	}
	return c
}

// heartbeatPeriod is the period requested from the server. On MariaDB the relay's own writes are not in the stream, so only a
// heartbeat shows that the stream has passed them. A sweep waits for that after each page, which is such a write.
func heartbeatPeriod(flavor outbox.Flavor, configured time.Duration) time.Duration {
	if flavor == outbox.MariaDB {
		return min(configured, OwnWritesPassed)
	}
	return configured
}

// OwnWritesPassed is the heartbeat period on MariaDB: after this time without a commit the server says where the log ends.
const OwnWritesPassed = 50 * time.Millisecond

// prepare sets the session up before the dump. Without the privilege for skip_replication the stream only has more events.
func (s *stream) prepare(conn *client.Conn, info server.Info, from outbox.Position) error {
	if s.sieve != nil && s.reading != nil {
		s.packets = s.reading(conn)
	}
	statements := []string{fmt.Sprintf("SET SESSION net_write_timeout=%d", int(netWriteTimeout.Seconds()))}
	if info.Flavor == outbox.MariaDB && !s.raw {
		statements = append(statements, "SET SESSION skip_replication=1")
	}
	for _, statement := range statements {
		var refused *mysql.MyError
		if _, err := conn.Execute(statement); err != nil && !errors.As(err, &refused) {
			return fmt.Errorf("prepare the dump: %w", err)
		}
	}
	if info.Flavor != outbox.MariaDB || from.GTIDs == "" {
		return nil
	}
	// With these variables the server ignores file and offset of the dump command. The library would set the same and also update
	// its own GTID set at every event.
	for _, statement := range []string{"SET @slave_connect_state='" + from.GTIDs + "'", "SET @slave_gtid_strict_mode=1"} {
		if _, err := conn.Execute(statement); err != nil {
			return fmt.Errorf("prepare the dump: %w", err)
		}
	}
	return nil
}

// start dials and requests the log. The library reads beyond the end of a greeting that was damaged in transit, which encryption
// does not protect: that ends this connection and not the process (A51).
func (s *stream) start(syncer *replication.BinlogSyncer, info server.Info, from outbox.Position) (streamer *replication.BinlogStreamer, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			streamer, err = nil, fmt.Errorf("%w: what the server answered cannot be read: %v", mysql.ErrBadConn, cause)
		}
	}()
	if info.Flavor == outbox.MySQL && from.GTIDs != "" {
		set, err := mysql.ParseMysqlGTIDSet(from.GTIDs)
		if err != nil {
			return nil, fmt.Errorf("GTID set of the checkpoint: %w", err)
		}
		return syncer.StartSyncGTID(set)
	}
	if from.GTIDs == "" {
		s.skip = from
	}
	return syncer.StartSync(dumpStart(from))
}

// dumpStart returns the position to request by file and offset. The dump command has 32 bits for the offset (A45), but a file can
// always be read from its start; what was offered before is skipped.
func dumpStart(from outbox.Position) mysql.Position {
	if from.Offset > math.MaxUint32 {
		return mysql.Position{Name: from.File, Pos: firstOffset}
	}
	return mysql.Position{Name: from.File, Pos: uint32(from.Offset)}
}
