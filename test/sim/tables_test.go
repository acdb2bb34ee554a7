package sim

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is for the seeds that have a second table with a status next to the first one: it may keep the order of its keys if that one does, and is not truncated.

const sideTable = "shop.t_side_message"

// firstSideID is the first primary key of the second table. Those of the first begin again after a TRUNCATE, and stay below it.
const firstSideID = 100_000

// drawTables is drawn apart, so that the rest of a seed is what it was. It comes after what is set for the first table.
func (p *plan) drawTables(seed uint64) {
	d := newDice(seed, "tables")
	p.twoTables = d.chance(0.2)
	several := p.twoTables || slices.ContainsFunc(p.txns, func(t txnPlan) bool { return t.kind == logged })
	p.settings.Pipeline.Several, p.settings.Ack.Several = several, several
	if !p.twoTables {
		return
	}
	if p.ordered && d.chance(0.6) {
		p.settings.Pipeline.Ordered = append(p.settings.Pipeline.Ordered, sideTable)
	}
	p.settings.Fallback.Tables = p.tables()
	both(p.settings.Again.Failed)
	both(p.settings.Again.Sent)
	if !p.quiet && d.chance(0.5) { // for longer than the relay waits for a table
		p.healed += 14 * time.Second
		lock := func(d *dice) window {
			from, lasts := d.between(0, p.work), pick(d, d.between(50*time.Millisecond, 5*time.Second), d.between(11*time.Second, 16*time.Second))
			return window{from: from, to: min(p.healed, from+lasts)}
		}
		one := lock(d)
		p.locked = map[string]window{pick(d, tableName, sideTable): one}
		if d := newDice(seed, "both tables"); d.chance(0.3) {
			p.locked[tableName], p.locked[sideTable] = lock(d), lock(d)
		}
	}
}

// lockWait is lock_wait_timeout.
const lockWait = 2 * time.Second

// awaitTable waits until no other session has locked a table, and fails after lockWait as the server does. A statement that
// is cancelled meanwhile stays on the server, which has the lock after the time left; 0: it does not stay.
func (c rows) awaitTable(ctx context.Context, d *dice, name string) (left time.Duration, err error) {
	w := c.i.w
	w.mu.Lock()
	lock, is := w.plan.locked[name]
	if !is || !lock.covers(w.at()) {
		w.mu.Unlock()
		return 0, nil
	}
	from, wait := w.at(), lock.to-w.at()
	w.note(c.i.life, "locked", "", name, 0)
	w.mu.Unlock()
	err = sleep(ctx, min(wait, lockWait)+d.between(time.Microsecond, 100*time.Microsecond)) // not all at once
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case wait > lockWait && err == nil:
		return 0, errDrawn
	case wait > lockWait:
		return 0, err
	}
	return max(0, from+wait-w.at()), err
}

// wasLocked reports whether a table was locked while a process ran: its rows may have been left to the sweep. Callers hold mu.
func (w *world) wasLocked(i *incarnation, r *row) bool {
	lock, is := w.plan.locked[r.Table]
	return is && lock.from <= w.at() && lock.to > i.began.Sub(w.began)
}

// leftByWindow reports whether the recovery window may have left a row to the sweep: no sweep had it when the log showed it. Callers hold mu.
func (r *row) leftByWindow(life int) bool {
	f := r.of(life)
	return f.offered && (f.sweptAt.IsZero() || !f.sweptAt.Before(f.offeredAt))
}

// both gives the second table what the first has.
func both[V any](of map[string]V) {
	if v, is := of[tableName]; is {
		of[sideTable] = v
	}
}

// tables are those with a status.
func (p *plan) tables() []string {
	if p.twoTables {
		return []string{tableName, sideTable}
	}
	return []string{tableName}
}

// leased are all tables.
func (p *plan) leased() []string { return append(p.tables(), logTable) }

// chooseTable decides in which table a new row is; both have the same keys. Callers hold mu.
func (w *world) chooseTable(r *row, d *dice) {
	if w.plan.twoTables && d.chance(0.5) {
		w.nextSideID++
		r.Table, r.number = sideTable, firstSideID+w.nextSideID
	}
}

// ofTable distinguishes the draws of a statement on the second table from those of one on the first at the same time.
func ofTable(what, table string) string {
	if table == sideTable {
		return what + " of the second table"
	}
	return what
}

// shownOnly are rows of which the log shows no more than that they are there, by table.
func shownOnly(rows []*row, cause outbox.Cause) (list []outbox.Deferred) {
	n := map[string]int{}
	for _, r := range rows {
		n[r.Table]++
	}
	for _, name := range slices.Sorted(maps.Keys(n)) {
		list = append(list, outbox.Deferred{Table: name, Cause: cause, Rows: n[name]})
	}
	return list
}

// primary is where a row is: a table and a primary key.
type primary struct{ table, id string }

func (r *row) in() primary { return primary{r.Table, r.ID} }

// number is a primary key as a number.
func number(id string) (n int) {
	for _, c := range []byte(id) {
		n = n*10 + int(c-'0')
	}
	return n
}
