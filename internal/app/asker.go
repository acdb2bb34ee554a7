package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// asker asks the server: over a pool, and for the boundaries of transactions by a look into the log itself.
type asker struct {
	db     *sql.DB
	source server.Config
	known  atomic.Pointer[server.Info] // how End asks the server
}

// Look says who answers and where its log ends.
func (a *asker) Look(ctx context.Context) (server.Info, outbox.Position, error) {
	info, err := server.Inspect(ctx, a.db)
	if err != nil {
		return info, outbox.Position{}, err
	}
	end, err := info.End(ctx, a.db)
	return info, end, err
}

// End is the file and the offset behind the last transaction, by one statement: a sweep asks for it with each page. Its name
// depends on the server's version, which is looked at again when the server has not answered.
func (a *asker) End(ctx context.Context) (end outbox.Position, err error) {
	info := a.known.Load()
	if info == nil {
		now, err := server.Inspect(ctx, a.db)
		if err != nil {
			return end, err
		}
		info = &now
	}
	if end, err = info.FileEnd(ctx, a.db); err != nil {
		info = nil
	}
	a.known.Store(info)
	return end, err
}

// relaySource is the server as a relay asks it. After a failover behind one address an idle connection may still be to the old server, so it uses none that
// may be.
type relaySource struct {
	config server.Config
	tables *asker // over the pool of the tables, which is used only while its server is the one that the reader has accepted
}

// Look implements relay.Source, by one connection of its own.
func (s relaySource) Look(ctx context.Context) (info server.Info, end outbox.Position, err error) {
	db, err := server.Open(s.config, nil, server.Session{MaxConns: 1})
	if err != nil {
		return info, end, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return (&asker{db: db}).Look(ctx)
}

// End implements relay.Source.
func (s relaySource) End(ctx context.Context) (outbox.Position, error) { return s.tables.End(ctx) }

// Earliest is the oldest position that can be read.
func (a *asker) Earliest(ctx context.Context) (outbox.Position, error) {
	info, err := server.Inspect(ctx, a.db)
	if err != nil {
		return outbox.Position{}, err
	}
	return info.Earliest(ctx, a.db)
}

// HasFile reports whether the server still has a position.
func (a *asker) HasFile(ctx context.Context, p outbox.Position) (bool, error) {
	info, err := server.Inspect(ctx, a.db)
	if err != nil {
		return false, fmt.Errorf("ask the server for its logs: %w", err)
	}
	return info.HasFile(ctx, a.db, p)
}

// Files lists the files of the server's log.
func (a *asker) Files(ctx context.Context) ([]server.File, error) { return server.Files(ctx, a.db) }

// At returns the end of the last transaction before the first one that the server stamped with this time or a later one, by the times
// at which its files begin and then by those in one file. The oldest file must begin before: since is when it does.
func (a *asker) At(ctx context.Context, target time.Time) (at outbox.Position, since time.Time, err error) {
	files, err := a.Files(ctx)
	if err != nil {
		return at, since, err
	}
	begins := func(i int) (time.Time, error) { return canal.Begins(ctx, a.source, files[i].Name) }
	if since, err = begins(0); err != nil || !since.Before(target) {
		return at, since, err
	}
	low, high := 0, len(files) // the file of low begins before the target, that of high does not
	for low+1 < high {
		middle := (low + high) / 2
		begin, err := begins(middle)
		if err != nil {
			return at, since, err
		}
		if begin.Before(target) {
			low = middle
		} else {
			high = middle
		}
	}
	at, err = canal.EndBefore(ctx, a.source, files[low].Name, target)
	return at, since, err
}

// Now is the server's clock.
func (a *asker) Now(ctx context.Context) (time.Time, error) {
	now, err := server.Now(ctx, a.db)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the server for its time: %w", err)
	}
	return now, nil
}

// Boundaries returns the transaction boundaries nearest to an offset in a file of the log.
func (a *asker) Boundaries(ctx context.Context, at outbox.Position) (before, after outbox.Position, err error) {
	return canal.Boundaries(ctx, a.source, at)
}
