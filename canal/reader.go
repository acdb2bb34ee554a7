package canal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Reader follows the log of one server over any number of connections.
type Reader struct {
	cfg     Config
	name    string // in the server's list of replicas
	handler Handler
	log     *zap.Logger
	gauge   *gauge
	tables  *tableSet
	reading func(*client.Conn) packets

	db       *sql.DB
	pos      outbox.Position      // where the next stream begins; GTIDs is kept in set
	set      *outbox.GTIDSet      // everything before pos; nil: unknown, resume by file and offset
	branches map[string][]*mapped // XA branches prepared since setPosition
	pieces   outbox.Position      // the end of a transaction that must be read in pieces, see largeError

	settings map[string]bool // what the first check of the server's settings found; true: a warning. nil before it. Used by periodic checks

	again    chan struct{} // holds one token when LookAgain was called
	failures int           // consecutive attempts in which nothing was read
	stuck    *stuck        // nil: the last stream did not end at an unreadable event
	logged   string        // the state in the last log line: a class, or connected
}

// New returns a reader. It does no I/O; Handler says how its methods are called.
func New(cfg Config, h Handler, log *zap.Logger, reg prometheus.Registerer) *Reader {
	cfg = cfg.withDefaults()
	if cfg.ServerID == 0 {
		cfg.ServerID = randomServerID()
	}
	r := &Reader{cfg: cfg, name: readerName(), handler: h, log: log, reading: ownReading, branches: map[string][]*mapped{}, again: make(chan struct{}, 1)}
	r.gauge = newGauge(reg, cfg.Tables, cfg.Heartbeat)
	r.tables = newTableSet(cfg.Tables, log)
	r.tables.schemas.store = cfg.Schemas
	return r
}

// State is safe for concurrent use.
func (r *Reader) State() State { return r.gauge.snapshot() }

// Run follows the log after from until the context ends, and then returns nil. It reconnects without end. A zero from is a first
// start: Handler.Gap returns where to begin. Errors: *ForeignSourceError, and configurations that cannot work. Run may be called
// again afterwards, but not concurrently.
func (r *Reader) Run(ctx context.Context, from outbox.Position) (err error) {
	r.db, err = server.Open(r.cfg.Server, nil, server.Session{MaxConns: 2})
	if err != nil {
		return err
	}
	defer func() {
		r.gauge.stopped()
		_ = r.db.Close() // its error is about a connection that broke earlier: not a fault of this run
	}()
	r.failures, r.stuck, r.logged = 0, nil, ""
	r.setPosition(from)
	for ctx.Err() == nil {
		err := r.attempt(ctx)
		if ctx.Err() != nil {
			break
		}
		var foreign *ForeignSourceError
		if errors.As(err, &foreign) {
			return err
		}
		outbox.Wait(ctx, r.backoff(err), r.again)
	}
	return nil
}

// LookAgain ends the wait between two attempts, the present one or the next: another server may answer now. An attempt continues. It may be called at any time.
func (r *Reader) LookAgain() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// attempt checks the server, opens one stream and reads it until it breaks. nil means that a gap was reported, so that the next
// attempt continues after it, or that a transaction must be read again.
func (r *Reader) attempt(ctx context.Context) error {
	p, err := look(ctx, r.db)
	if err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	if r.pos.IsZero() {
		return r.gap(ctx, &p, outbox.GapFirstStart, "no position is known")
	}
	failover, cause, why, err := r.check(ctx, &p)
	if err != nil {
		return err
	}
	if cause != "" {
		return r.gap(ctx, &p, cause, why)
	}
	if err := r.completeGTIDs(ctx, &p); err != nil {
		return err
	}
	err = r.readStream(ctx, &p, failover)
	var large *largeError
	if errors.As(err, &large) && r.pieces != large.end {
		r.log.Info(large.Error())
		r.pieces = large.end
		return nil
	}
	c, cause := r.judge(err, p.info.Platform)
	if c != classGap || ctx.Err() != nil {
		return err
	}
	r.gauge.disconnected(c, err)
	why = err.Error()
	if p, err = look(ctx, r.db); err != nil {
		return fmt.Errorf("look at the server after a gap: %w", err)
	}
	return r.gap(ctx, &p, cause, why)
}

// backoff counts a failure and returns the wait before the next attempt. Consecutive gaps, without anything read between them,
// wait too.
func (r *Reader) backoff(err error) time.Duration {
	backoff := outbox.Backoff{Base: r.cfg.MinBackoff, Max: r.cfg.MaxBackoff}
	wait := backoff.Delay(r.failures, rand.Float64())
	r.failures++
	if err == nil {
		return wait
	}
	c, _ := classOf(err)
	if c == classFenced {
		err = &sameIDError{id: r.cfg.ServerID, cause: err}
		wait += fencedWait
	}
	if c == classHeld {
		wait += heldWait
	}
	r.gauge.disconnected(c, err)
	r.logChange(string(c), func() {
		r.log.Warn("no binlog stream, trying again", zap.String("class", string(c)), zap.Stringer("position", r.pos), zap.String("error", err.Error()))
	})
	return wait
}

// fencedWait keeps two readers with one server id from ending each other's streams alternately.
const fencedWait = time.Minute

// heldWait limits the log lines of a reader that waits for an operator.
const heldWait = 10 * time.Second

// logChange writes a log line when the state differs from the previous line's.
func (r *Reader) logChange(state string, line func()) {
	if r.logged != state {
		r.logged = state
		line()
	}
}

// from returns where the next stream begins.
func (r *Reader) from() outbox.Position {
	from := r.pos
	if r.set != nil {
		from.GTIDs = r.set.String()
	}
	return from
}

// setPosition moves to another position of the log. Outcomes of XA branches may be in the skipped part, and the branches' ids may
// be used again after it.
func (r *Reader) setPosition(pos outbox.Position) {
	r.pos, r.set, r.pieces = pos, nil, outbox.Position{}
	clear(r.branches)
}
