package sim

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/lease/leasetest"
	"github.com/canal-outbox/canal-outbox/lease/protocol"
)

// leases is the lease table, and what the oracle remembers of its rows.
type leases struct {
	leaseTable leasetest.Table
	held       []*leaseRow
	ahead      time.Duration // of the database's clock
	known      bool          // some holder has begun to read
	moves      time.Time     // when the table came to another server
}

// leaseRow is one acquisition.
type leaseRow struct {
	leasetest.Row
	by       *member // nil: a holder before the simulation
	taken    time.Time
	unknown  bool      // the process has no answer that says that it has it
	from     int       // number of transactions the holders before were done with
	renewed  time.Time // the last time
	answered time.Time // when its holder had the answer last
}

// init makes a table that was in use: its last holder released it.
func (l *leases) init(server uint32, tables []string) {
	last := lease.Record{Term: 1, Holder: "before", Tables: tables}
	last.Resume.Source.ServerID = server
	l.leaseTable = leasetest.Table{Server: server, Counted: true, Birth: "birth", Newest: 1, Rows: []leasetest.Row{{Record: last}}}
	l.sync()
}

// moved is after a failover. Callers hold mu.
func (l *leases) moved(server uint32) { l.leaseTable.Server, l.moves = server, time.Now() }

// sync makes held of the rows of the table.
func (l *leases) sync() {
	var held []*leaseRow
	for _, r := range l.leaseTable.Rows {
		h := l.leaseOf(r.Term)
		if h == nil {
			h = &leaseRow{}
		}
		h.Row = r
		held = append(held, h)
	}
	l.held = held
}

// leaseRows is lease.Rows for one process.
type leaseRows struct{ began *incarnation }

// stepClock sets the database's clock. Callers do not hold mu.
func (w *world) stepClock(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += by
	w.note(0, "clock", "", by.String(), 0)
}

// clock is the database's. Callers hold mu.
func (w *world) clock() time.Time { return time.Now().Add(w.ahead) }

// ask is the way of a statement to the server and back; what it does there it may do though its answer is lost, or comes too late.
func (c leaseRows) ask(ctx context.Context, what string, effect func()) error {
	w, m := c.began.w, c.began.team
	w.mu.Lock()
	i, began := c.began.latest(), time.Now()
	m.asking = began
	w.mu.Unlock()
	d, err := rows{i}.call(ctx, "lease "+what)
	if d == nil { // it did not reach the server, or the outcome is unknown
		w.mu.Lock()
		d = w.dice("lease lost", uint64(i.life))
		w.mu.Unlock()
	}
	late := d.between(10*time.Microsecond, time.Millisecond)
	if d.chance(w.plan.team.slow) {
		late = d.between(time.Millisecond, w.plan.team.lease/3)
	}
	switch {
	case err == nil:
		err = c.travel(ctx, i, late, d, effect)
	case ctx.Err() != nil && d.chance(0.3) && !i.dead: // it was held up on the way, and arrives
		time.AfterFunc(late+d.between(0, w.plan.team.lease), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			effect()
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.asking = time.Time{}
	if err != nil || time.Since(began) > 50*time.Millisecond {
		w.note(i.life, "lease "+what, "", "trouble", 0)
		m.trouble = latest(m.trouble, time.Now())
	}
	return err
}

// travel carries out a statement on the server.
func (c leaseRows) travel(ctx context.Context, i *incarnation, late time.Duration, d *dice, effect func()) error {
	w := c.began.w
	there := time.Duration(float64(late) * d.float())
	err := sleep(ctx, there)
	w.mu.Lock()
	if dead := i.latest().dead; (dead || err != nil) && d.chance(0.5) {
		w.mu.Unlock()
		return errDead
	}
	effect()
	lost := d.chance(w.plan.errors) && w.at() < w.plan.healed
	dead := i.latest().dead
	w.mu.Unlock()
	switch {
	case dead || i.step("after lease"):
		return errDead
	case err != nil:
		return err
	case lost:
		return errLost
	}
	return sleep(ctx, late-there)
}

// Read implements lease.Rows.
func (c leaseRows) Read(ctx context.Context) (v protocol.View, err error) {
	w := c.began.w
	err = c.ask(ctx, "read", func() { v = w.leaseTable.Read(w.clock()) })
	return v, err
}

// Begin implements lease.Rows.
func (c leaseRows) Begin(ctx context.Context, birth string, newest uint64) error {
	return c.ask(ctx, "begin", func() { c.began.w.leaseTable.Begin(birth, newest) })
}

// Take implements lease.Rows.
func (c leaseRows) Take(ctx context.Context, take protocol.Take, ttl time.Duration) error {
	w := c.began.w
	taken := error(lease.ErrTaken)
	err := c.ask(ctx, "take", func() {
		before := w.held
		if taken = w.leaseTable.Take(take, ttl, w.clock()); taken != nil {
			return
		}
		w.sync()
		for _, r := range before {
			if w.leaseOf(r.Term) == nil {
				w.checkTaken(c.began.team, r)
			}
		}
		row := w.leaseOf(take.Next.Term)
		row.by, row.taken, row.renewed, row.answered = c.began.team, time.Now(), time.Now(), time.Now()
		if at := take.Next.Resume; !at.At.IsZero() && at.Source == w.id {
			row.from = w.indexOf(at.At)
		}
		w.note(c.began.life, "lease taken", c.began.team.name(), take.Next.Resume.At.String(), int(take.Next.Term))
		w.append(&entry{reason: "lease"})
	})
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if r := w.leaseOf(take.Next.Term); r != nil && r.by == c.began.team {
			r.unknown = true
		}
		return err
	}
	return taken
}

// Renew implements lease.Rows.
func (c leaseRows) Renew(ctx context.Context, own protocol.Acquisition, at lease.Resume, ttl time.Duration) (held bool, err error) {
	w := c.began.w
	err = c.ask(ctx, "renew", func() {
		if held = w.leaseTable.Renew(own, at, ttl, w.clock()); held {
			c.changed("lease renewed", own.Term, at)
		}
	})
	if err == nil && held {
		w.mu.Lock()
		defer w.mu.Unlock()
		if r := w.leaseOf(own.Term); r != nil {
			r.answered = time.Now()
		}
	}
	return held, err
}

// Release implements lease.Rows.
func (c leaseRows) Release(ctx context.Context, own protocol.Acquisition, at lease.Resume) error {
	w := c.began.w
	return c.ask(ctx, "release", func() {
		if w.leaseTable.Release(own, at) {
			c.changed("lease released", own.Term, at)
		}
	})
}

// changed notes that a row was written. Callers hold mu.
func (c leaseRows) changed(what string, term uint64, at lease.Resume) {
	w := c.began.w
	w.sync()
	w.leaseOf(term).renewed = time.Now()
	w.note(c.began.life, what, c.began.team.name(), at.At.String(), int(term))
	w.append(&entry{reason: "lease"})
}

// leaseOf is the row of a term; nil when there is none. Callers hold mu.
func (l *leases) leaseOf(term uint64) *leaseRow {
	if i := slices.IndexFunc(l.held, func(r *leaseRow) bool { return r.Term == term }); i >= 0 {
		return l.held[i]
	}
	return nil
}
