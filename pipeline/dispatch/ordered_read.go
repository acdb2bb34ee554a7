package dispatch

import (
	"context"
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

// keepOrder reads tables that are to be read and looks at the rows that keys wait for, until ctx ends.
func (o *ordered) keepOrder(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		more, err := o.watchOrder(ctx)
		if err != nil {
			if failures == 0 && ctx.Err() == nil {
				o.log.Warn("cannot look at the rows that keys wait for (ordering: key), trying again: these keys stay blocked", zap.Error(err))
			}
			outbox.Wait(ctx, askPauses.Delay(failures, o.Random()), nil)
			failures++
			continue
		}
		failures = 0
		wait := idleTick
		if more {
			wait = orderTick
		}
		outbox.Wait(ctx, wait, o.orderWake)
	}
}

// watchOrder does what is to be done now. It reports whether keys wait.
func (o *ordered) watchOrder(ctx context.Context) (more bool, err error) {
	if err := o.ReadTables(ctx); err != nil {
		return true, err
	}
	for again := true; again; {
		if again, err = o.lookAtRows(ctx); err != nil {
			return true, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order.Busy(), nil
}

// lookAtRows asks what became of the first rows of keys that have no owner. It reports whether there may be more to look at.
func (o *ordered) lookAtRows(ctx context.Context) (again bool, err error) {
	o.mu.Lock()
	var heads []outbox.Identity
	if o.breaker.state == breakerClosed { // else nothing would go out
		heads = o.order.ToLook(time.Now(), o.tracker, o.topics.has)
	}
	o.mu.Unlock()
	if len(heads) == 0 {
		return false, nil
	}
	asked, cancel := context.WithTimeout(ctx, orderAsking)
	defer cancel()
	list, err := o.rows.States(asked, heads)
	if err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.handOn()
	act := o.order.Looked(heads, list, time.Now())
	for _, due := range act.Due {
		o.sweeps.DueIn(due.ID, due.In)
	}
	if act.Sweep {
		o.sweeps.Trigger()
	}
	return act.Again, nil
}

// ReadTables reads the tables of which it is time. Run does; until it has, nothing of these tables is published. A table that cannot be read ends
// the call with the error; it and those after it are read at the next one.
func (o *ordered) ReadTables(ctx context.Context) error {
	for _, name := range o.cfg.Ordered {
		if err := o.readTable(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// readTable reads the rows of a table that are not final, if it is time.
func (o *ordered) readTable(ctx context.Context, name string) error {
	o.mu.Lock()
	due := o.order.Reading(name).Due(time.Now())
	o.mu.Unlock()
	if !due {
		return nil
	}
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
