package canal

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// receiver is what a stream needs of a Handler.
type receiver interface {
	Offer(ctx context.Context, txn *outbox.Txn) error
	Idle(pos outbox.Position)
}

// stream is the log of one connection. Its HandleEvent runs in the library's reading goroutine. With a sieve it keeps that
// goroutine and reads the events itself, from the second one.
type stream struct {
	ctx      context.Context
	name     string // in the server's list of replicas
	raw      bool   // for an inspection of the file: every event, none decoded
	handler  receiver
	gauge    *gauge
	set      *outbox.GTIDSet            // of the reader; accepted transactions are added; nil: unknown
	packets  packets                    // read from here after the first event; nil: the library reads
	sieve    *sieve                     // selects events before they are decoded; nil: the library has parsed all of them
	reading  func(*client.Conn) packets // the reading with a sieve; nil: the library reads
	decode   *decoder
	assemble *assembler
	skip     outbox.Position // transactions up to here were offered before; zero when the server skips them
	end      outbox.Position // of the server's log before the stream was opened; zero: unknown
	last     outbox.Position // file and offset after the last accepted transaction
	moved    bool            // a transaction was accepted
	idled    bool            // a heartbeat came at the end of the log
	opened   func()          // called at the first event; nil afterwards
	lively   func()          // called at the first transaction or heartbeat; nil afterwards
	err      error           // of HandleEvent
}

// run reads until the stream breaks or the context ends; the error is never nil. events is s, or forwards to it.
func (s *stream) run(cfg Config, p serverState, from outbox.Position, events replication.EventHandler) error {
	w := newStreamDialer(s.ctx)
	defer w.close()
	stop := context.AfterFunc(s.ctx, w.close)
	defer stop()
	s.lively = func() { w.limit(3 * cfg.Heartbeat) }
	syncer := replication.NewBinlogSyncer(s.config(cfg, p, from, w, events))
	streamer, err := s.start(syncer, p.info, from)
	var answer *mysql.MyError
	if errors.As(err, &answer) {
		cfg.Server.LoggedIn(err, answer.Code)
	} else {
		cfg.Server.LoggedIn(err, 0)
	}
	if err != nil {
		return s.reason(err)
	}
	// With our own handler this returns no event, only the end of the stream, when the reading goroutine has ended.
	_, err = streamer.GetEvent(context.WithoutCancel(s.ctx))
	return &streamError{s.reason(err)}
}

// reason prefers our own error to the library's version of it.
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

// HandleEvent implements replication.EventHandler.
func (s *stream) HandleEvent(e *replication.BinlogEvent) error {
	if s.opened != nil {
		s.opened()
		s.opened = nil
	}
	s.err = s.handle(e)
	if s.err == nil && s.packets != nil {
		s.err = s.readOn(s.packets)
	}
	return s.err
}

func (s *stream) handle(e *replication.BinlogEvent) error {
	if s.sieve != nil {
		if err := s.sieve.open(e, s.decode.body(e, false), s.decode.tables); err != nil {
			return s.reason(err)
		}
	}
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
	at := txn.End
	if txn.More {
		at = s.decode.Position
	}
	if !s.skip.IsZero() && at.Compare(s.skip) <= 0 {
		return nil
	}
	s.alive()
	committed := s.gauge.offering(txn)
	if fine(txn.CommittedAt) {
		for _, m := range txn.Messages {
			if committed.Before(m.Since) { // else the clocks were not compared as exactly
				m.Since = committed
			}
		}
	}
	end, id, more := txn.End, txn.GTID, txn.More // the handler owns the transaction from here on
	if err := s.handler.Offer(s.ctx, txn); err != nil {
		return &handlerError{err}
	}
	if more {
		return nil
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

// heartbeat means that the reader is at the end of the log, unless the heartbeat came inside a transaction or before the end that
// the server had when the stream was opened. MySQL sends such a heartbeat when it skips transactions that the reader has
// (rpl_binlog_sender.cc, send_events).
func (s *stream) heartbeat(low uint32, body *replication.HeartbeatEvent) {
	pos := s.decode.Position
	switch file := string(body.Filename); {
	case s.assemble.open || body.Version != 1 || low == 0:
		s.gauge.alive()
		return
	case file != pos.File:
		pos = outbox.Position{File: file, Offset: uint64(low)}
	case uint64(low) >= pos.Offset&0xffffffff:
		pos.Offset = pos.Offset&^0xffffffff | uint64(low)
	}
	s.alive()
	// In a file of 4 GiB and more the upper half of the offset may not be known yet.
	if pos.Compare(s.end) < 0 && (pos.File != s.end.File || low != uint32(s.end.Offset)) {
		s.gauge.skipping()
		return
	}
	s.decode.tables.schemas.idle(s.decode.tables.list, pos)
	s.idled = true
	s.gauge.idle(pos)
	s.handler.Idle(pos)
}
