package dispatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline/keyorder"
)

// This file asks the tables what the order of keys wants to know: which rows are not final, at the start and after a part of the log was skipped,
// and what became of the rows that keys wait for.

// Rows shows the state of rows. store.Store implements it.
type Rows interface {
	// States reads rows by primary key; rows that do not exist are missing from the answer.
	States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error)
	// Due selects a page of the rows that are not final, behind a cursor; a page may be empty before the end.
	Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error)
}

const (
	orderTick   = 31 * time.Millisecond // while keys wait
	orderPage   = 500                   // rows in one query
	orderLong   = 10 * 365 * 24 * time.Hour
	orderAsking = 30 * time.Second // for one query
)

// askPauses are after queries that failed.
var askPauses = outbox.Backoff{Base: 200 * time.Millisecond, Max: 15 * time.Second}

// question is what is known of the questions about a table that fail.
type question struct {
	failures int
	next     time.Time // none before
}

// ask puts a question about a table, unless one has just failed: a table that cannot be read is asked about from time to time, and keeps no other waiting
// for longer than its answer takes. The error is that of the question, and one line in the log is for all tables that fail together.
func (o *ordered) ask(ctx context.Context, name string, ask func() error) error {
	o.mu.Lock()
	rests := o.rests(name, time.Now())
	o.mu.Unlock()
	if rests {
		return nil
	}
	err := ask()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err == nil:
		delete(o.failing, name)
	default:
		if len(o.failing) == 0 {
			o.log.Warn("cannot look at the rows that keys wait for (ordering: key), trying again: the keys of this table stay blocked", zap.String("table", name), zap.Error(err))
		}
		q := o.failing[name]
		o.failing[name] = question{q.failures + 1, time.Now().Add(askPauses.Delay(q.failures, o.Random()))}
	}
	return err
}

// rests reports whether no question is put about a table now. Callers hold mu.
func (o *ordered) rests(name string, now time.Time) bool { return now.Before(o.failing[name].next) }

// keepOrder reads tables that are to be read and looks at the rows that keys wait for, until ctx ends.
func (o *ordered) keepOrder(ctx context.Context) {
	for ctx.Err() == nil {
		_ = o.ReadTables(ctx) // ask has logged it, and it is done again
		for again := true; again; {
			again = o.lookAtRows(ctx)
		}
		outbox.Wait(ctx, o.pause(), o.orderWake)
	}
}

func (o *ordered) pause() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order.Busy() {
		return orderTick
	}
	clear(o.failing) // what was asked is of no interest any more
	return idleTick
}

// lookAtRows asks what became of the first rows of keys that have no owner. It reports whether there may be more to look at. A table that cannot be asked
// does not affect the rows of others.
func (o *ordered) lookAtRows(ctx context.Context) (again bool) {
	o.mu.Lock()
	var heads []outbox.Identity
	if now := time.Now(); o.breaker.state == breakerClosed { // else nothing would go out
		heads = o.order.ToLook(now, o.tracker, func(table, topic string) bool { return o.topics.has(topic) || o.rests(table, now) })
	}
	o.mu.Unlock()
	slices.SortStableFunc(heads, func(a, b outbox.Identity) int { return cmp.Compare(a.Table, b.Table) })
	for len(heads) > 0 && ctx.Err() == nil {
		name := heads[0].Table
		of := heads
		if n := slices.IndexFunc(heads, func(id outbox.Identity) bool { return id.Table != name }); n > 0 {
			of = heads[:n]
		}
		heads = heads[len(of):]
		_ = o.ask(ctx, name, func() (err error) { // ask has logged it, and the rows are looked at again
			more, err := o.lookAt(ctx, of)
			again = again || more
			return err
		})
	}
	return again
}

// lookAt asks what became of rows of one table. It reports whether there may be more to look at.
func (o *ordered) lookAt(ctx context.Context, rows []outbox.Identity) (again bool, err error) {
	asked, cancel := context.WithTimeout(ctx, orderAsking)
	defer cancel()
	list, err := o.rows.States(asked, rows)
	if err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.handOn()
	act := o.order.Looked(rows, list, time.Now())
	for _, due := range act.Due {
		o.sweeps.DueIn(due.ID, due.In)
	}
	if act.Sweep {
		o.sweeps.Trigger()
	}
	return act.Again, nil
}

// ReadTables reads the tables of which it is time. Run does; until it has, nothing of these tables is published. A table that cannot be read is
// read at a later call; the others are read all the same. The error is of those that failed.
func (o *ordered) ReadTables(ctx context.Context) error {
	var failed []error
	for _, name := range o.cfg.Ordered {
		o.mu.Lock()
		due := o.order.Reading(name).Due(time.Now())
		o.mu.Unlock()
		if due {
			failed = append(failed, o.ask(ctx, name, func() error { return o.readTable(ctx, name) }))
		}
	}
	return errors.Join(failed...)
}

// readTable reads the rows of a table that are not final.
func (o *ordered) readTable(ctx context.Context, name string) error {
	for done := false; !done; {
		began := time.Now()
		o.mu.Lock()
		o.order.Reading(name).Begin(o.tracker, began)
		o.mu.Unlock()
		fits, err := o.readRows(ctx, name)
		o.mu.Lock()
		if err != nil {
			o.order.Reading(name).Failed()
			o.mu.Unlock()
			return err
		}
		var room keyorder.Room
		done, room = o.order.Reading(name).End(fits, time.Since(began), time.Now())
		o.handOn()
		o.reportRoom(name, room)
	}
	o.sweeps.Trigger() // which left the rows alone
	return nil
}

func (o *ordered) reportRoom(name string, room keyorder.Room) {
	switch room {
	case keyorder.RoomShort:
		o.log.Warn("more rows wait for an earlier row of their key than are remembered: only the sweep publishes rows of this table until they are fewer",
			zap.String("table", name), zap.Int("remembered", o.cfg.MaxWaiting))
	case keyorder.RoomEnough:
		o.log.Info("all rows that wait for an earlier row of their key are remembered again", zap.String("table", name))
	}
}

// readRows pages through the index of the status. It reports false when there is no room.
func (o *ordered) readRows(ctx context.Context, name string) (fits bool, err error) {
	for at := (table.Cursor{}); !at.Done(); {
		page, next, err := o.due(ctx, name, at)
		if err != nil {
			return false, err
		}
		o.mu.Lock()
		fits := o.order.Reading(name).Page(page, o.tracker, time.Now())
		o.handOn()
		if !fits {
			return false, nil
		}
		at = next
	}
	return true, nil
}

func (o *ordered) due(ctx context.Context, name string, at table.Cursor) ([]outbox.Candidate, table.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, orderAsking)
	defer cancel()
	return o.rows.Due(ctx, name, at, table.DueQuery{Horizon: orderLong, Limit: orderPage})
}
