package sim

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/lease"
)

// leases is the lease table.
type leases struct {
	held   []*leaseRow
	newest uint64
	ahead  time.Duration // of the database's clock
	known  bool          // some holder has begun to read
}

// leaseRow is one acquisition.
type leaseRow struct {
	lease.Record
	by      *member
	until   time.Time // by the database's clock; zero when it was released
	taken   time.Time
	unknown bool      // the process was not told that it has it
	from    int       // so many transactions the holders before were done with
	renewed time.Time // the last time
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
	if d == nil { // it did not come through, or nobody can tell
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
func (c leaseRows) Read(ctx context.Context) (all []lease.Record, newest uint64, err error) {
	w := c.began.w
	err = c.ask(ctx, "read", func() {
		for _, r := range w.held {
			one := r.Record
			one.Ends, one.Ended = r.ends(), !r.until.After(w.clock())
			all = append(all, one)
		}
		newest = w.newest
	})
	if err != nil {
		return nil, 0, err
	}
	return all, newest, nil
}

// ends is the text of the end.
func (r *leaseRow) ends() string {
	if r.until.IsZero() {
		return ""
	}
	return r.until.Format(time.RFC3339Nano)
}

// Take implements lease.Rows.
func (c leaseRows) Take(ctx context.Context, next lease.Record, newest uint64, from []lease.Record, ttl time.Duration) error {
	w := c.began.w
	taken := error(lease.ErrTaken)
	err := c.ask(ctx, "take", func() {
		for _, r := range from {
			if h := w.leaseOf(r.Epoch); h == nil || h.ends() != r.Ends {
				return
			}
		}
		if w.newest != newest {
			return
		}
		taken = nil
		w.newest = next.Epoch
		for _, r := range from {
			w.checkTaken(c.began.team, w.leaseOf(r.Epoch))
			w.held = slices.DeleteFunc(w.held, func(h *leaseRow) bool { return h.Epoch == r.Epoch })
		}
		row := &leaseRow{Record: next, by: c.began.team, until: w.clock().Add(ttl), taken: time.Now(), renewed: time.Now()}
		if at := next.Resume; !at.At.IsZero() && at.Source == w.id {
			row.from = w.indexOf(at.At)
		}
		w.held = append(w.held, row)
		w.note(c.began.life, "lease taken", c.began.team.name(), next.Resume.At.String(), int(next.Epoch))
		w.append(&entry{reason: "lease"})
	})
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if r := w.leaseOf(next.Epoch); r != nil && r.by == c.began.team {
			r.unknown = true
		}
		return err
	}
	return taken
}

// Renew implements lease.Rows.
func (c leaseRows) Renew(ctx context.Context, epoch uint64, at lease.Resume, ttl time.Duration) (held bool, err error) {
	w := c.began.w
	err = c.ask(ctx, "renew", func() {
		r := w.leaseOf(epoch)
		if held = r != nil; !held {
			return
		}
		r.until, r.renewed = w.clock().Add(ttl), time.Now()
		r.resume(at)
		w.note(c.began.life, "lease renewed", c.began.team.name(), at.At.String(), int(epoch))
		w.append(&entry{reason: "lease"})
	})
	return held, err
}

// Release implements lease.Rows.
func (c leaseRows) Release(ctx context.Context, epoch uint64, at lease.Resume) error {
	w := c.began.w
	return c.ask(ctx, "release", func() {
		if r := w.leaseOf(epoch); r != nil {
			r.until, r.renewed = time.Time{}, time.Now()
			r.resume(at)
			w.note(c.began.life, "lease released", c.began.team.name(), at.At.String(), int(epoch))
			w.append(&entry{reason: "lease"})
		}
	})
}

func (r *leaseRow) resume(at lease.Resume) {
	if !at.At.IsZero() {
		r.Resume = at
	}
}

// leaseOf is the row of an epoch; nil when there is none. Callers hold mu.
func (w *world) leaseOf(epoch uint64) *leaseRow {
	if i := slices.IndexFunc(w.held, func(r *leaseRow) bool { return r.Epoch == epoch }); i >= 0 {
		return w.held[i]
	}
	return nil
}
