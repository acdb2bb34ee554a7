package canal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Begins returns when the server began to write a binlog file, by the server's clock: the time of its first event.
func Begins(ctx context.Context, cfg server.Config, file string) (time.Time, error) {
	f := &firstEvent{}
	err := lookInto(ctx, cfg, outbox.Position{File: file, Offset: firstOffset}, f)
	return f.at, err
}

// EndBefore returns the end of the last transaction in a binlog file before the first one with the given time or a later one: a
// reader that starts there misses nothing committed from then on. Times are whole seconds, and those of concurrent transactions
// may go back a little. If the whole file is older its end is returned.
func EndBefore(ctx context.Context, cfg server.Config, file string, at time.Time) (outbox.Position, error) {
	start := outbox.Position{File: file, Offset: firstOffset}
	f := &timeFinder{boundaryFinder: newBoundaryFinder(start, math.MaxInt64), since: uint32(max(0, at.Unix()))}
	err := lookInto(ctx, cfg, start, f)
	return f.before, err
}

// lookInto opens a raw stream at a position and passes its events to a finder, which ends it with errFound.
func lookInto(ctx context.Context, cfg server.Config, start outbox.Position, events replication.EventHandler) (err error) {
	db, err := server.Open(cfg, nil, server.Session{MaxConns: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := look(ctx, db)
	if err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	s := &stream{ctx: ctx, name: lookerName(), raw: true}
	if err := s.run(Config{Server: cfg, ServerID: randomServerID(), Heartbeat: lookHeartbeat}, p, start, events); !errors.Is(err, errFound) {
		return fmt.Errorf("look into %s: %w", start.File, err)
	}
	return nil
}

// firstEvent takes the time of the first event that the server did not invent for the stream.
type firstEvent struct{ at time.Time }

// HandleEvent implements replication.EventHandler.
func (f *firstEvent) HandleEvent(e *replication.BinlogEvent) error {
	if e.Header.Timestamp == 0 || e.Header.EventType == replication.ROTATE_EVENT {
		return nil
	}
	f.at = time.Unix(int64(e.Header.Timestamp), 0)
	return errFound
}

// timeFinder searches the first transaction that is not older than a time.
type timeFinder struct {
	boundaryFinder
	since uint32
}

// HandleEvent implements replication.EventHandler. A transaction has the times of its statements; the time of its end decides.
func (f *timeFinder) HandleEvent(e *replication.BinlogEvent) error {
	last := f.before
	err := f.boundaryFinder.HandleEvent(e)
	if e.Header.EventType == replication.ROTATE_EVENT {
		f.before = last // the end of the file is no transaction
		return err
	}
	ended := f.before != last && !bookkeeping(e.Header.EventType)
	if ended && e.Header.Timestamp >= f.since {
		f.before = last
		return errFound
	}
	return err
}

// bookkeeping reports whether an event belongs to the file, at its start and end, and not to a transaction.
func bookkeeping(t replication.EventType) bool {
	switch t {
	case replication.FORMAT_DESCRIPTION_EVENT, replication.PREVIOUS_GTIDS_EVENT, replication.STOP_EVENT,
		replication.MARIADB_GTID_LIST_EVENT, replication.MARIADB_BINLOG_CHECKPOINT_EVENT, replication.MARIADB_START_ENCRYPTION_EVENT:
		return true
	}
	return false
}
