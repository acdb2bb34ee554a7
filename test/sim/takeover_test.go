package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file checks the promises of a lease: at most one process publishes, and soon another one does when it ends.

// checkFence looks at a message that leaves a process: the lease is the process's, and has not ended by a clock that runs like that of
// the database. Callers hold mu.
func (w *world) checkFence(i *incarnation, f *flight) {
	at := slices.IndexFunc(w.held, func(r *leaseRow) bool { return r.by == i.team })
	switch {
	case at < 0:
		w.violation("fence", "%s is sent by %s, whose lease another process has taken", name(f.row.Identity), i.team.name())
	case w.held[at].Until.IsZero():
		w.violation("fence", "%s is sent by %s, which has released the lease", name(f.row.Identity), i.team.name())
	case time.Since(w.held[at].renewed) >= w.plan.team.lease:
		w.violation("fence", "%s is sent by %s, whose lease ended %v ago", name(f.row.Identity), i.team.name(), time.Since(w.held[at].renewed)-w.plan.team.lease)
	}
}

// checkJudgement looks at an attempt or a failure when a process sends its statement, and when the server executes it: no other process has taken the
// lease. Where the statement waits on the server for a lock, another one may take it meanwhile: then the guards of the row decide. Callers hold mu.
func (w *world) checkJudgement(i *incarnation, s outbox.Completion) {
	if i.team == nil {
		return
	}
	if at := slices.IndexFunc(w.held, func(l *leaseRow) bool { return l.by == i.team }); at < 0 {
		w.violation("fence", "an attempt at %s is written by %s, whose lease another process has taken", name(s.Identity), i.team.name())
	}
}

// checkReleased looks at the lease after a stop in order: it is free at once. Callers hold mu.
func (w *world) checkReleased(m *member, stopped time.Time) {
	for _, r := range w.held {
		if r.by == m && !r.unknown && !r.Until.IsZero() && !w.lapsedAtMove(r) && m.trouble.Before(stopped) && !m.asleep.After(stopped) {
			w.violation("stop", "the lease of %s is not released", m.name())
		}
	}
}

// healthy reports whether the process can do what it should on time. Callers hold mu.
func (m *member) healthy() bool {
	i := m.disk.present
	return i.team == m && !i.dead && i.ctx.Err() == nil && time.Since(m.trouble) > m.w.plan.team.lease && !i.cutOff()
}

// cutOff reports whether it does not reach the database now. Callers hold mu.
func (i *incarnation) cutOff() bool {
	_, is := i.databaseDown()
	return is
}

// lapsedAtMove reports whether a lease may have lapsed when its holder reached the new server after a failover: that holder has lost it. It stops,
// and is healthy meanwhile; it does not release the lease. The lease counts from before the last renewal was sent whose answer came, which may take
// a third of it.
// Callers hold mu.
func (w *world) lapsedAtMove(r *leaseRow) bool {
	return w.moves.After(r.renewed) && r.by != nil && r.by.trouble.Sub(r.answered) >= w.plan.team.lease/2
}

// checkTaken looks at a take-over: no process takes the lease from a holder in good health. Callers hold mu.
func (w *world) checkTaken(by *member, r *leaseRow) {
	if !r.Until.IsZero() && !w.lapsedAtMove(r) && r.by.healthy() && r.by.held != nil {
		w.violation("take-over", "%s takes the lease away from %s, which works (term %d)", by.name(), r.by.name(), r.Term)
	}
}

// watchLease checks all the time that two relays never publish at once, and that no relay that could take over waits for long.
func (w *world) watchLease(over <-chan struct{}) {
	vacant := time.Now()
	for {
		select {
		case <-over:
			return
		case <-time.After(20*time.Millisecond + 11):
		}
		w.mu.Lock()
		var holders []string
		for _, m := range w.members() {
			if i := m.disk.present; !i.dead && m.held != nil && m.held.Fence.May() {
				holders = append(holders, m.name())
				if !m.asleep.After(time.Now()) {
					vacant = time.Now()
				}
			}
		}
		if len(holders) > 1 {
			w.violation("lease", "may publish at the same time: %v", holders)
		}
		for _, m := range w.members() {
			if w.overdue(m, vacant) {
				w.violation("take-over", "%s stands by though no relay works since %v", m.name(), vacant.Sub(w.began))
				vacant = time.Now()
			}
		}
		w.mu.Unlock()
	}
}

// overdue reports whether a process should have taken over. Callers hold mu.
func (w *world) overdue(m *member, vacant time.Time) bool {
	i := m.disk.present
	if i.dead || i.ctx.Err() != nil || m.lease == nil || m.held != nil || i.cutOff() || !m.asking.IsZero() && time.Since(m.asking) > 50*time.Millisecond {
		return false
	}
	ttl := w.plan.team.lease
	since, bound := latest(latest(vacant, m.trouble), w.moves), 2*ttl
	if w.ahead != 0 {
		bound += 3 * ttl / 10
	}
	released := true
	for _, r := range w.held {
		since = latest(since, r.renewed)
		released = released && r.Until.IsZero() && r.Resume.Source.ServerID == w.id.ServerID
	}
	if released {
		bound = 2 * ttl / 10
	}
	return time.Since(since) > bound+300*time.Millisecond
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// tookOver is when the process took the lease. The new holder need not have what an earlier one writes afterwards. A process without a lease has
// all that was ever written. Callers hold mu.
func (w *world) tookOver(i *incarnation) time.Time {
	for _, r := range w.held {
		if r.by == i.team {
			return r.taken
		}
	}
	return time.Now()
}

// checkInherited checks a row without a status that is sent again: it lies behind the position up to which the earlier holders
// had settled the log, unless the position was reset. Callers hold mu.
func (w *world) checkInherited(i *incarnation, r *row) {
	if i.team == nil || i.disk.moved || r.records == 0 {
		return
	}
	for _, h := range w.held {
		if h.by == i.team && r.entry < h.from {
			w.violation("take-over", "%s is sent again though the holder before was done with it", name(r.Identity))
		}
	}
}

// A process whose lease another one has taken writes no attempt: in this seed it is frozen, wakes with a refusal to write, and another process
// has sent the row meanwhile.
func TestG04_LostHolderWritesNoAttempt(t *testing.T) {
	if r := runSeed(t, teams+100_156); len(r.violations) > 0 {
		t.Error(describe(r))
	}
}
