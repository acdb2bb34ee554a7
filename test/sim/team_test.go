package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is for the seeds in which several processes, each with a state directory of its own, share the tables and a lease.

const (
	teams     = 1_000_000_000_000 // the first of these seeds
	teamEvery = 20                // of a range of other seeds is followed by one of these
)

// teamPlan is what such a seed decides besides.
type teamPlan struct {
	lease   time.Duration
	slow    float64 // of statements on the lease
	clocks  []clockStep
	members []memberPlan
}

// clockStep moves the database's clock.
type clockStep struct{ at, by time.Duration }

// memberPlan is what happens to one state directory and its processes.
type memberPlan struct {
	begin    time.Duration
	lives    []life
	frozen   []window // SIGSTOP
	database []window // it does not reach the database
	broker   []window
}

// drawTeam is drawn apart, from a plan that is complete.
func (p *plan) drawTeam(seed uint64) {
	if seed < teams {
		return
	}
	d := newDice(seed, "team")
	t := &teamPlan{lease: d.between(time.Second, 2500*time.Millisecond)}
	for n := range pick(d, 2, 2, 3) {
		m := memberPlan{lives: p.drawTurns(d)}
		if n > 0 {
			m.begin = d.between(0, 1500*time.Millisecond)
		}
		if !p.quiet {
			m.frozen = p.windows(d, 0.25, 3*t.lease)
			m.database = p.windows(d, 0.2, 3*t.lease)
			m.broker = p.windows(d, 0.15, 3*t.lease)
		}
		t.members = append(t.members, m)
	}
	for i := range p.operations {
		if p.operations[i].what == doReplace { // then operators decide, one for each process
			p.operations[i].what = doTrigger
		}
	}
	if p.lives, p.team = nil, t; p.quiet {
		return
	}
	t.slow = pick(d, 0, 0.05, 0.2)
	if d.chance(0.2) {
		t.clocks = []clockStep{{d.between(0, p.work), d.between(-10*time.Second, 10*time.Second)}}
	}
}

// drawTurns is drawLives for one of several; where nothing fails, processes stop in order.
func (p *plan) drawTurns(d *dice) (list []life) {
	for range pick(d, 0, 1, 1, 2, 3) {
		l := life{
			end: pick(d, endKill, endKill, endKillAtStep, endKillAtStep, endKillAtFile, endStop, endStop), after: d.in(1, pick(d, 20, 150)),
			at: d.between(10*time.Millisecond, p.work/2), down: d.between(150*time.Millisecond, 3*time.Second), purge: d.chance(0.03),
		}
		if l.lose = l.end != endStop && d.chance(0.1); p.quiet {
			l.end, l.purge, l.lose = endStop, false, false
		}
		list = append(list, l)
	}
	return append(list, life{end: endRun})
}

// member is a process among others. Its lease and what follows it are guarded by world.mu.
type member struct {
	w    *world
	disk *disk
	plan memberPlan // of its state directory

	lease   *lease.Lease
	held    *relay.HeldLease // nil while it stands by
	asleep  time.Time        // it is frozen until then
	waking  int              // who waits for that
	asking  time.Time        // since when it waits for an answer about the lease; zero: it does not
	trouble time.Time        // when it began, woke, or had a statement on the lease that failed or took long
}

// enlist makes the member of a process that begins on a state directory; nil where there is one process. Callers hold mu.
func (w *world) enlist(d *disk) *member {
	if w.plan.team == nil {
		return nil
	}
	return &member{w: w, disk: d, plan: w.plan.team.members[d.number], trouble: time.Now()}
}

// members are the processes that are there, or were last. Callers hold mu.
func (w *world) members() (all []*member) {
	for _, d := range w.disks {
		if d.present != nil && d.present.team != nil {
			all = append(all, d.present.team)
		}
	}
	return all
}

// runTeam runs everybody to the end.
func (w *world) runTeam() {
	for _, s := range w.plan.team.clocks {
		time.AfterFunc(s.at, func() { w.stepClock(s.by) })
	}
	var all sync.WaitGroup
	for n, m := range w.plan.team.members {
		w.mu.Lock()
		if n > 0 {
			w.disks = append(w.disks, newDisk(n))
		}
		d := w.disks[n]
		w.mu.Unlock()
		for _, f := range m.frozen {
			time.AfterFunc(f.from, func() { w.freeze(d, f) })
		}
		all.Go(func() {
			time.Sleep(m.begin)
			w.runOn(d, m.lives)
		})
	}
	over := make(chan struct{})
	w.background.Go(func() { w.watchLease(over) })
	all.Wait()
	close(over)
}

func (m *member) name() string { return string(rune('A' + m.disk.number)) }

func (m *member) setHeld(h *relay.HeldLease) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if m.held = h; h == nil && m.disk.present.ctx.Err() == nil { // a stop is no trouble
		m.trouble = latest(m.trouble, time.Now())
	}
}

// settled reports whether the process has worked long enough to have nothing left of its predecessors.
func (m *member) settled() bool {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	unsure := slices.ContainsFunc(m.w.lives, func(r *row) bool { // one that is stored, and is to be sent again
		f := r.of(m.disk.present.life)
		return f.handed || f.answer == outbox.ClassUnknown
	})
	return m.works() && !unsure && time.Since(m.w.tookOver(m.disk.present)) > 2*heartbeat
}

// works reports whether the process publishes. Callers hold mu.
func (m *member) works() bool {
	i := m.disk.present
	return m.held != nil && !i.dead && !m.asleep.After(time.Now()) && i.relay != nil && i.relay.Ready() && m.held.Fence.May()
}

// ready reports whether a member works. Callers hold mu.
func (i *incarnation) ready() bool {
	if i.team == nil {
		return i.relay != nil && i.relay.Ready()
	}
	for _, m := range i.w.members() {
		if m.works() {
			return true
		}
	}
	return false
}

// working is the process that an operator talks to. Callers hold mu.
func (w *world) working() *incarnation {
	for _, m := range w.members() {
		if m.works() {
			return m.disk.present
		}
	}
	return w.disks[0].present
}

// freeze is SIGSTOP, and SIGCONT later.
func (w *world) freeze(d *disk, f window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.present == nil || d.present.dead {
		return
	}
	m := d.present.team
	m.asleep = latest(m.asleep, w.began.Add(f.to))
	m.trouble = latest(m.trouble, m.asleep)
	w.note(0, "frozen", m.name(), "", int((f.to - f.from).Milliseconds()))
}

// awaitWake returns at once unless the process is frozen. What it does meanwhile by itself has no effect until it wakes.
func (i *incarnation) awaitWake() {
	if i.team == nil {
		return
	}
	for {
		i.w.mu.Lock()
		left := time.Until(i.team.asleep)
		if left > 0 {
			i.team.waking++
			left += time.Duration(i.team.waking) * time.Microsecond // one after the other
		}
		dead := i.dead
		i.w.mu.Unlock()
		if dead || left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// sleptThrough reports whether the process was frozen after began: the time that a stop may take passed meanwhile. Callers hold mu.
func (i *incarnation) sleptThrough(began time.Time) bool {
	return i.team != nil && i.team.asleep.After(began)
}

// databaseDown is the trouble of the process with the database now. Callers hold mu.
func (i *incarnation) databaseDown() (window, bool) {
	if at := i.w.at(); i.team != nil {
		if cut, is := covering(i.team.plan.database, at); is {
			return cut, true
		}
	}
	return covering(i.w.plan.database, i.w.at())
}

// brokerDown is the trouble of the process with the broker now. Callers hold mu.
func (i *incarnation) brokerDown() (window, bool) {
	if at := i.w.at(); i.team != nil {
		if cut, is := covering(i.team.plan.broker, at); is {
			return cut, true
		}
	}
	return covering(i.w.plan.broker, i.w.at())
}

// connection is what keeps messages of a key in their order: of several processes each has its own.
func (i *incarnation) connection(wire string) string {
	if i.team == nil {
		return wire
	}
	return i.team.name() + "/" + wire
}
