package canal

import (
	"context"
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

// taker is what a stream needs of a Handler.
type taker interface {
	Offer(ctx context.Context, txn *outbox.Txn) error
	Idle(pos outbox.Position)
}

// stream is one connection's worth of log. Its HandleEvent runs in the library's reading goroutine.
type stream struct {
	ctx      context.Context
	name     string // in the server's list of replicas
	raw      bool   // for a look at the file itself: every event, and none decoded
	handler  taker
	gauge    *gauge
	set      *outbox.GTIDSet // of the reader; transactions taken are added; nil: not known
	decode   *decoder
	assemble *assembler
	skip     outbox.Position // transactions up to here were offered before; zero when the server skips them itself
	last     outbox.Position // file and offset behind the last transaction taken
	moved    bool            // a transaction was taken
	idled    bool            // a heartbeat came at the end of the log
	lively   func()          // called at the first transaction or heartbeat
	err      error           // of HandleEvent
}

// netWriteTimeout is what we ask the server for: how long it waits for us while we hold the stream back (A15).
const netWriteTimeout = 600 * time.Second

// run reads until the stream breaks or the context ends; the error is never nil. events is s, or passes on to it.
func (s *stream) run(cfg Config, peer peer, from outbox.Position, events replication.EventHandler) error {
	w := newWire(s.ctx)
	defer w.close()
	stop := context.AfterFunc(s.ctx, w.close)
	defer stop()
	s.lively = func() { w.limit(3 * cfg.Heartbeat) }
	syncer := replication.NewBinlogSyncer(s.config(cfg, peer, from, w, events))
	streamer, err := s.start(syncer, peer.info, from)
	if err != nil {
		return s.reason(err)
	}
	// With a handler of ours no event comes out here, only the end. It does so when the reading goroutine is done with us.
	_, err = streamer.GetEvent(context.WithoutCancel(s.ctx))
	return &streamError{s.reason(err)}
}

// reason prefers what we know to what the library makes of it.
func (s *stream) reason(err error) error {
	var broken *replication.EventError // prints the event's bytes, which may be a message's body
	switch {
	case s.ctx.Err() != nil:
		return s.ctx.Err()
	case s.err != nil:
		return s.err
	case errors.As(err, &broken):
		return fmt.Errorf("event of type %s that ends at %d cannot be read: %s", broken.Header.EventType, broken.Header.LogPos, broken.Err)
	}
	return err
}

func (s *stream) config(cfg Config, peer peer, from outbox.Position, w *wire, events replication.EventHandler) replication.BinlogSyncerConfig {
	c := replication.BinlogSyncerConfig{
		ServerID: cfg.ServerID, Flavor: string(peer.info.Flavor),
		Host: cfg.Server.Address, User: cfg.Server.User, Password: cfg.Server.Password,
		TLSConfig: cfg.Server.TLS, Localhost: s.name,
		HeartbeatPeriod: heartbeatPeriod(peer.info.Flavor, cfg.Heartbeat), Dialer: w.dial,
		DisableRetrySync: true, DiscardGTIDSet: true, EventCacheCount: 1, PayloadDecoderConcurrency: 1,
		SynchronousEventHandler: events, RawModeEnabled: s.raw,
		// Rows are decoded by the plan of their table, and only inserts of mapped tables.
		RowsEventDecodeFunc:            func(e *replication.RowsEvent, data []byte) error { _, err := e.DecodeHeader(data); return err },
		TableMapOptionalMetaDecodeFunc: func([]byte) error { return nil },
		Option:                         func(conn *client.Conn) error { return s.prepare(conn, peer.info, from) },
		Logger:                         slog.New(slog.DiscardHandler), // what matters of it comes back as an error
	}
	if !peer.encrypted { // mode preferred, and the server has no TLS
		c.TLSConfig = nil
	}
	if host, port, err := net.SplitHostPort(cfg.Server.Address); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			c.Host, c.Port = host, uint16(n)
		}
	}
	return c
}

// heartbeatPeriod is what the server is asked for. MariaDB leaves the relay's own writes out of the stream, so that only a
// heartbeat tells that they were passed; a sweep, whose every page is such a write, waits for that.
func heartbeatPeriod(flavor outbox.Flavor, configured time.Duration) time.Duration {
	if flavor == outbox.MariaDB {
		return min(configured, ownWritesPassed)
	}
	return configured
}

const ownWritesPassed = 50 * time.Millisecond

// prepare sets the session before the dump. Without the privilege for skip_replication the stream is only busier.
func (s *stream) prepare(conn *client.Conn, info server.Info, from outbox.Position) error {
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
	// With these the server ignores file and offset of the dump command. The library would do the same and keep a GTID set
	// of its own at every event besides.
	for _, statement := range []string{"SET @slave_connect_state='" + from.GTIDs + "'", "SET @slave_gtid_strict_mode=1"} {
		if _, err := conn.Execute(statement); err != nil {
			return fmt.Errorf("prepare the dump: %w", err)
		}
	}
	return nil
}

// start dials and asks for the log. The library reads beyond the end of a greeting that was damaged on the way, which no
// encryption covers yet: that ends this connection and not the process (A51).
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

// dumpStart gives the place to ask for by file and offset. The dump command has 32 bits for the offset (A45), but a file
// can always be read from its beginning; what was offered before is passed over.
func dumpStart(from outbox.Position) mysql.Position {
	if from.Offset > math.MaxUint32 {
		return mysql.Position{Name: from.File, Pos: firstOffset}
	}
	return mysql.Position{Name: from.File, Pos: uint32(from.Offset)}
}

// HandleEvent implements replication.EventHandler.
func (s *stream) HandleEvent(e *replication.BinlogEvent) error {
	s.err = s.handle(e)
	return s.err
}

func (s *stream) handle(e *replication.BinlogEvent) error {
	switch body := e.Event.(type) {
	case *replication.HeartbeatEvent:
		s.heartbeat(e.Header.LogPos, body)
		return nil
	case *replication.TransactionPayloadEvent:
		s.decode.advance(e.Header.LogPos) // all events of the payload end where it ends
		for _, inner := range body.Events {
			if err := s.feed(inner, true); err != nil {
				return err
			}
		}
	}
	return s.feed(e, false)
}

func (s *stream) feed(e *replication.BinlogEvent, inner bool) error {
	ev, err := s.decode.decode(e, inner)
	if err != nil {
		return err
	}
	txn, err := s.assemble.feed(ev)
	if err != nil || txn == nil {
		return err
	}
	return s.offer(txn)
}

func (s *stream) offer(txn *outbox.Txn) error {
	if !s.skip.IsZero() && txn.End.Compare(s.skip) <= 0 {
		return nil
	}
	s.alive()
	committed := s.gauge.offering(txn)
	if fine(txn.CommittedAt) {
		for _, m := range txn.Messages {
			if committed.Before(m.Since) { // else the clocks were not compared as well as that
				m.Since = committed
			}
		}
	}
	end, id := txn.End, txn.GTID // the transaction is the handler's from here on
	if err := s.handler.Offer(s.ctx, txn); err != nil {
		return &handlerError{err}
	}
	if s.set != nil {
		s.set.Add(id)
	}
	s.gauge.offered(end, id)
	s.last = end
	s.moved = true
	return nil
}

func (s *stream) alive() {
	if s.lively != nil {
		s.lively()
		s.lively = nil
	}
}

// heartbeat means that the log is at its end, unless it came between the events of a transaction.
func (s *stream) heartbeat(low uint32, body *replication.HeartbeatEvent) {
	pos := s.decode.Position
	switch file := string(body.Filename); {
	case s.assemble.open || body.Version != 1 || low == 0:
		s.gauge.heard()
		return
	case file != pos.File:
		pos = outbox.Position{File: file, Offset: uint64(low)}
	case uint64(low) >= pos.Offset&0xffffffff:
		pos.Offset = pos.Offset&^0xffffffff | uint64(low)
	}
	s.alive()
	s.decode.tables.schemas.idle(s.decode.tables.list)
	s.idled = true
	s.gauge.idle(pos)
	s.handler.Idle(pos)
}
