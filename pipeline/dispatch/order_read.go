package dispatch

import (
	"context"
	"hash/fnv"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// This file is what the gate asks the tables: which rows are not final, at the start and after a part of the log was passed over, and
// what became of the rows that keys wait for.

// Rows shows the state of rows. table.Store implements it.
type Rows interface {
	// States reads rows by primary key; rows that do not exist are missing from the answer.
	States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error)
	// Due selects a page of the rows that are not final, behind a cursor; a page may be empty before the end.
	Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error)
}

const (
	orderTick   = 31 * time.Millisecond // while keys wait
	orderPage   = 500                   // rows that are looked at in one query
	orderLanes  = 5000                  // keys that are thought of in one tick
	orderGroup  = 100                   // rows of a key that are announced together
	orderLong   = 10 * 365 * 24 * time.Hour
	lateCommit  = 15 * time.Second // a row that is not found may not be visible yet
	headLook    = 12 * time.Second // the row that a key waits for is looked at so often at least: it may be deleted, held or marked as sent
	readShare   = 4                // a reading that is asked for again waits so many times as long as the last one took
	maxTurns    = 1 << 16          // of a closed table
	turnPause   = 2 * time.Second  // without progress, for which a turn of a closed table lasts
	turnLasts   = 30 * time.Second // at most
	orderAsking = 30 * time.Second // for one query
)

// lookPauses are between looks at a row that should go out soon.
var lookPauses = outbox.Backoff{Base: 250 * time.Millisecond, Max: headLook}

// askPauses are after queries that failed.
var askPauses = outbox.Backoff{Base: 200 * time.Millisecond, Max: 15 * time.Second}

// orderedTable says what is known of the rows of a table that are not final.
//
// An open table is known whole: each of these rows is in hand or left to a key. It is unread until it was read: nothing is published.
// With more rows than can be remembered it is closed: the keys take turns, by their hash, and are read anew in each turn. Rows that
// nobody remembers are left alone meanwhile, so that the order is kept, and the log's rows are left to the sweep.
type orderedTable struct {
	unread bool
	again  bool      // to be read once more, for rows that are found before the log shows them, and for deferred ones
	rest   time.Time // no such reading before
	begun  int       // readings; of the rows that were inserted while so many had begun
	done   int       // the last that was complete: it has shown all that are before rows of an earlier one
	closed bool
	slices uint64 // of the keys; 0 and 1: all at once
	turn   uint64 // whose keys are remembered
	tight  bool   // in this turn, of some keys the first rows alone are
	began  time.Time
	moved  time.Time // when a row was forgotten last
	told   bool      // it was logged that it is closed
	rows   int       // that are remembered

	// See order_deferred.go.
	missed  uint64 // reports of rows that the reader has deferred
	missing bool   // they may still be unknown
	proof   int    // the reading that shows them when it is complete; 0: no row behind them was seen yet
}

// close begins to leave rows unremembered.
func (t *orderedTable) close(now time.Time) {
	if !t.closed {
		t.closed, t.began = true, now
	}
}

// turnOver reports whether a closed table is to be read anew.
func (t *orderedTable) turnOver(now time.Time) bool {
	return t.closed && (t.rows == 0 || now.Sub(t.moved) > turnPause && now.Sub(t.began) > turnPause || now.Sub(t.began) > turnLasts)
}

// nextTurn goes on to the next keys. After the last ones there are fewer turns, because the rows may have become fewer.
func (t *orderedTable) nextTurn() {
	if t.turn++; t.turn >= t.slices {
		t.turn, t.slices = 0, t.slices/2
	}
}

// has reports whether it is a key's turn.
func (t *orderedTable) has(k rowKey) bool {
	if t.slices < 2 {
		return true
	}
	h := fnv.New64a()
	h.Write([]byte(k.topic + "\x00" + k.key)) // which never fails
	return h.Sum64()%t.slices == t.turn
}

// Unread makes the gate read the tables anew: a part of the log was passed over.
func (d *Dispatch) Unread() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.gate.tables {
		t.unread = true
	}
	d.gate.blind = outbox.Position{}
	d.gate.kick()
}

// Blind tells that the sweep or a timer goes on though the log was not offered up to a position: rows that nobody has told us of may be
// before those that it finds.
func (d *Dispatch) Blind(end outbox.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate.blind.Compare(end) < 0 {
		d.gate.blind = end
	}
}

// keepOrder reads tables that are to be read and looks at the rows that keys wait for, until ctx ends.
func (d *Dispatch) keepOrder(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.gate.wake:
		}
		more, err := d.watchOrder(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures == 0 {
				d.log.Warn("cannot look at the rows that keys wait for (ordering: key), trying again: these keys wait on", zap.Error(err))
			}
			pause := time.NewTimer(askPauses.Delay(failures, d.Random()))
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
			failures++
			timer.Reset(0)
		case more:
			failures = 0
			timer.Reset(orderTick)
		default:
			failures = 0
			timer.Reset(idleTick)
		}
	}
}

// watchOrder does what is to be done now. It reports whether keys wait.
func (d *Dispatch) watchOrder(ctx context.Context) (more bool, err error) {
	if err := d.ReadTables(ctx); err != nil {
		return true, err
	}
	for again := true; again; {
		if again, err = d.lookAtRows(ctx); err != nil {
			return true, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.gate.tables {
		more = more || t.unread || t.again || t.closed
	}
	return more || len(d.gate.waiting) > 0, nil
}

// ReadTables reads the tables of which it is time. Run does; until it has, nothing of these tables is published.
func (d *Dispatch) ReadTables(ctx context.Context) error {
	for _, name := range d.cfg.Ordered {
		if err := d.readTable(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// readTable remembers the rows of a table that are not final, if it is time; of a closed one, those of some keys.
func (d *Dispatch) readTable(ctx context.Context, name string) error {
	d.mu.Lock()
	t, now := d.gate.tables[name], time.Now()
	if over := t.turnOver(now); over && !t.unread {
		t.nextTurn()
		t.unread = true
	}
	again := t.again && !now.Before(t.rest)
	t.unread = t.unread || again && t.closed // what a closed table remembers is forgotten first
	unread := t.unread || again
	d.mu.Unlock()
	if !unread {
		return nil
	}
	for {
		d.beginTurn(t)
		began := time.Now()
		fits, err := d.readRows(ctx, name, t)
		if err != nil {
			d.mu.Lock()
			t.again = true
			d.mu.Unlock()
			return err
		}
		if d.endTurn(name, t, fits, time.Since(began)) {
			break
		}
	}
	d.sweeps.Trigger() // which left the rows alone
	return nil
}

// beginTurn forgets what a closed table remembers: what is left of it is read anew.
func (d *Dispatch) beginTurn(t *orderedTable) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.closed {
		d.gate.forgetTable(t, d.tracker.Has)
	}
	t.begun++
	t.again = false
	t.tight = false
	t.closed = t.slices > 1 // read whole, it is open unless there is no room
}

// endTurn reports whether the rows that were to be remembered are; else the keys are to be read in more turns.
func (d *Dispatch) endTurn(name string, t *orderedTable, fits bool, took time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if (!fits || t.closed) && !t.told {
		t.told = true
		d.log.Warn("more rows wait for an earlier row of their key than are remembered: only the sweep publishes rows of this table until they are fewer",
			zap.String("table", name), zap.Int("remembered", d.gate.limit))
	}
	if !fits {
		t.slices, t.turn, t.closed = min(max(2, 2*t.slices), maxTurns), 0, true
		return false
	}
	if !t.closed && t.told {
		t.told = false
		d.log.Info("all rows that wait for an earlier row of their key are remembered again", zap.String("table", name))
	}
	t.done = t.begun
	now := time.Now()
	t.unread, t.began, t.moved, t.rest = false, now, now, now.Add(readShare*took)
	d.gate.proven(t, now)
	return true
}

// readRows pages through the index of the status. It reports false when there is no room.
func (d *Dispatch) readRows(ctx context.Context, name string, t *orderedTable) (fits bool, err error) {
	for at := (table.Cursor{}); !at.Done(); {
		page, next, err := d.due(ctx, name, at)
		if err != nil {
			return false, err
		}
		if !d.rememberPage(t, page) {
			return false, nil
		}
		at = next
	}
	return true, nil
}

func (d *Dispatch) due(ctx context.Context, name string, at table.Cursor) ([]outbox.Candidate, table.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, orderAsking)
	defer cancel()
	return d.rows.Due(ctx, name, at, table.DueQuery{Horizon: orderLong, Limit: orderPage})
}

// rememberPage remembers the rows of a page. Without room it keeps the first rows of each key that has some; it reports false when a key
// would have none. A row that comes before one in hand, or before one that is remembered, is remembered in any case and in any turn.
func (d *Dispatch) rememberPage(t *orderedTable, page []outbox.Candidate) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range page {
		c := &page[i]
		k := rowKey{c.Table, c.Topic, c.Key}
		if row := d.gate.rows[c.Identity]; row != nil {
			d.gate.sighted(row)
			continue
		}
		l := d.gate.keys[k]
		if c.Key == "" || !t.has(k) && !l.holds(c.ID) || postponed(c) { // also in the turn of others nothing may overtake
			continue
		}
		owner := d.tracker.Owner(c.Identity)
		if owner != nil && (owner.Sends.Count > 0 || owner.Sends.InLane || !owner.Logged() && !owner.Swept()) {
			continue // in hand, or sent; else recovery has it and it comes, or the sweep has and its claim is on its way back
		}
		if !d.gate.full(t) && !t.tight {
			d.gate.insert(k, c.Identity, owner, unfinishedText[c.Status]).seen = true
			continue
		}
		if l == nil && t.slices < maxTurns {
			return false
		}
		t.tight, t.closed = true, true
		if !l.holds(c.ID) {
			continue
		}
		d.gate.insert(k, c.Identity, owner, unfinishedText[c.Status]).seen = true
		if last := l.left[len(l.left)-1]; !l.holds(last.id.ID) && (last.entry == nil || !d.tracker.Has(last.entry)) {
			d.gate.forget(last)
		}
	}
	return true
}

var unfinishedText = map[outbox.Status]string{outbox.Pending: "not sent when the table was read", outbox.Sending: "claimed when the table was read"}

// nearlyDue is within what time a row is due that nobody means to delay: producers write "now" with rounding and clock skew.
const nearlyDue = 2 * time.Second

// postponed reports whether a row is due later by its producer's will: it is in no order until it is looked at when its time has come.
func postponed(c *outbox.Candidate) bool {
	return c.Waiting && c.RetryCount == 0 && time.Duration(c.DueInMilli)*time.Millisecond > nearlyDue
}
