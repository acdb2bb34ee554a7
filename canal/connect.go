package canal

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// check decides whether a stream may be opened. A cause means that the log does not continue from our position.
func (r *Reader) check(ctx context.Context, p *serverState) (failover bool, cause outbox.GapCause, why string, err error) {
	recorded, checkpoint := r.cfg.Recorded()
	relation, why := server.CheckIdentity(recorded, checkpoint, p.info, p.end)
	switch relation {
	case server.Foreign:
		if r.cfg.Descends != nil {
			if why, descends, err := r.cfg.Descends(ctx, recorded, checkpoint, p.info.ID); err != nil || descends {
				return false, outbox.GapFailover, why, err
			}
		}
		return false, "", "", &ForeignSourceError{Address: r.cfg.Server.Address, Recorded: recorded, Now: p.info.ID, Why: why}
	case server.Shorter:
		return false, outbox.GapShorter, why, nil
	case server.Failover:
		// Transactions read after the checkpoint may be missing here; file and offset are another server's.
		r.setPosition(outbox.Position{GTIDs: checkpoint.GTIDs})
	}
	why, err = p.info.Readable(ctx, r.db, r.from())
	if err == nil && why != "" {
		return false, outbox.GapPurged, why, nil
	}
	return relation == server.Failover, "", "", err
}

// readStream opens a stream and reads it until it breaks; the error is never nil.
func (r *Reader) readStream(ctx context.Context, p *serverState, failover bool) error {
	from := r.from()
	r.tables.setFold(p.info.CaseFolding != 0)
	r.tables.schemas.db, r.tables.schemas.info, r.tables.schemas.ahead = r.db, p.info, r.lookAhead(*p)
	var failed outbox.Position
	if failover {
		_, failed = r.cfg.Recorded()
	}
	if err := r.tables.schemas.connect(ctx, r.tables.list, from, failed); err != nil {
		return err
	}
	if err := r.handler.Connected(ctx, from, p.end, p.info.ID, failover); err != nil {
		return &handlerError{fmt.Errorf("open the stream: %w", err)}
	}
	s := r.newStream(ctx, r.handler, from)
	s.sieve, s.reading = newSieve(string(p.info.Flavor)), r.reading
	s.set, s.end = r.set, p.end
	s.decode.noticed = r.noticed
	s.opened = func() { // not earlier: a server that answers queries may still refuse its log
		r.gauge.connected(from, r.set, p.offset)
		if r.stuck != nil {
			return // the stream will break again, until the log line about progress
		}
		r.logChange("connected", func() {
			r.log.Info("reading the binlog", zap.Stringer("server", p.info.ID), zap.String("version", p.info.Version),
				zap.Stringer("from", from), zap.Stringer("end", p.end), zap.Bool("by_gtid", from.GTIDs != ""))
		})
	}
	endChecks := r.checkPeriodically(ctx, p.info)
	err := s.run(r.cfg, *p, from, s)
	endChecks()
	r.handler.Disconnected(err)
	if s.moved {
		r.pos = s.last
	}
	if s.moved || s.idled {
		r.failures = 0
		r.pastStuck()
	}
	return err
}

func (r *Reader) newStream(ctx context.Context, to receiver, from outbox.Position) *stream {
	boundary := outbox.Position{File: from.File, Offset: from.Offset}
	assemble := newAssembler(r.cfg.MaxTransactionBytes, boundary, r.branches)
	assemble.pieces, assemble.counts = r.pieces, to != receiver(r.handler)
	return &stream{
		ctx: ctx, name: r.name, handler: to, gauge: r.gauge,
		decode:   &decoder{cursor: cursor{boundary}, tables: r.tables, now: time.Now},
		assemble: assemble,
	}
}
