package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// patience is how long, in virtual time, everything may take once nothing fails any more: the longest pauses of the relay
// are a minute (a suspended topic).
const patience = 3 * time.Minute

// result is what one seed came to.
type result struct {
	seed       uint64
	violations []string
	trace      []event
	records    int
	rows       int
	lives      int
	virtual    time.Duration
}

// runSeed runs one seed in a bubble of its own.
func runSeed(t *testing.T, seed uint64) (res result) {
	res.seed = seed
	running.Store(seed, time.Now())
	defer running.Delete(seed)
	defer func() {
		if cause := recover(); cause != nil {
			res.violations = append(res.violations, fmt.Sprint("panic: ", cause))
		}
	}()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed)
		w.run()
		res.violations, res.trace = w.violations, w.trace
		res.records, res.rows, res.lives, res.virtual = len(w.records), len(w.lives), len(w.incarnations), w.at()
	})
	return res
}

func (w *world) run() {
	w.work()
	if w.plan.team != nil {
		w.runTeam()
	} else {
		w.runOn(w.disks[0], w.plan.lives)
	}
	w.background.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkEnd()
}

// runOn runs one process after the other on a state directory.
func (w *world) runOn(d *disk, lives []life) {
	for _, l := range lives {
		for w.live(w.start(d, l), l) {
			time.Sleep(l.down + 300*time.Millisecond) // until an operator has accepted the new source
		}
		w.between(d, l)
	}
}

// live is the life of one process. It reports whether the relay refused the source, rightly.
func (w *world) live(i *incarnation, l life) (refused bool) {
	var kill, stop, done <-chan struct{}
	switch l.end {
	case endRun:
		done = w.awaitQuiet(i)
	case endStop:
		stop = after(l.at + 3*time.Nanosecond)
	default:
		kill = after(w.plan.work) // at last
	}
	select {
	case err := <-i.ended:
		return w.endedItself(i, err)
	case <-i.killed:
	case <-kill:
		i.kill("at last")
	case <-stop:
		w.terminate(i)
	case <-done:
		works := i.team == nil || i.team.settled()
		retries := i.retries()
		for until := time.Now().Add(time.Minute); w.looksForGone(i) && time.Now().Before(until); {
			time.Sleep(100 * time.Millisecond) // in virtual time
		}
		w.terminate(i)
		if works && !retries && i.knowsServer() {
			w.checkJournalEmpty(i)
		}
	}
	return false
}

// after is closed when d has passed.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

// endedItself judges a relay that ended without a request.
func (w *world) endedItself(i *incarnation, err error) (refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i = i.latest()
	if i.dead {
		return false
	}
	i.dead = true
	var no *relay.RefusedError
	if i.mayRefuse() && errors.As(err, &no) {
		w.note(i.life, "refused", "", "", 0)
		i.sink.cut(w.dice("refused", 0))
		return true
	}
	w.violation("run", "the relay ended by itself: %v", err)
	return false
}

// stopLimit is how long a stop may take: three stages of Stop at the most, the flush, and statements that run.
const stopLimit = 40 * time.Second

// terminate stops a process cleanly: what the broker has acknowledged to it is in the journal or in the table.
func (w *world) terminate(i *incarnation) {
	w.mu.Lock()
	w.note(i.life, "TERM", "", "", 0)
	began := time.Now()
	w.mu.Unlock()
	i.cancel()
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	var err error
	select {
	case err = <-i.ended:
	case <-timer.C:
		w.mu.Lock()
		w.violation("stop", "it takes more than %v", stopLimit)
		w.mu.Unlock()
		i.kill("after a stop that did not end")
		<-i.ended
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i = i.latest()
	i.stoppedAt = w.at()
	w.note(i.life, "stopped", "", "", 0)
	var refused *relay.RefusedError
	if err != nil && !(i.mayRefuse() && errors.As(err, &refused)) {
		w.violation("stop", "%v", err)
	}
	for _, r := range w.lives {
		if r.of(i.life).acked && !i.sleptThrough(began) && !r.journalled.has(i.disk) && !(r.logOnly && (r.passed.has(i.disk) || r.again)) && !r.gone && r.status != outbox.Sent && !r.consumed && !r.touched {
			w.violation("P3", "a clean stop forgot that %s was acknowledged", name(r.Identity))
		}
	}
	w.checkReleased(i.team, began)
	w.checkBugs(i)
	i.dead = true // results that still arrive have no owner
	i.cut()
}

func (i *incarnation) cut() {
	if i.sink != nil {
		i.sink.flying = nil
	}
}

// between is the time without a process.
func (w *world) between(d *disk, l life) {
	if l.end == endRun {
		return
	}
	w.mu.Lock()
	if l.lose && !d.lost {
		d.files = vfs.NewCrashableMem()
		w.loseState(d, "directory")
	}
	w.mu.Unlock()
	time.Sleep(l.down / 2)
	if l.purge {
		w.mu.Lock()
		w.purge()
		w.mu.Unlock()
	}
	time.Sleep(l.down / 2)
}

// retries reports whether a row that is gone from the table waits for its next attempt: a stop gives it up, and keeps the mark before it.
func (i *incarnation) retries() bool {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	if i.relay == nil || i.relay.Flow == nil || i.relay.Flow.Snapshot().Owned == 0 {
		return false
	}
	life := i.latest().life
	return slices.ContainsFunc(i.w.lives, func(r *row) bool {
		f := r.of(life)
		return r.gone && !f.acked && (f.handed || f.answered)
	})
}

// awaitQuiet is closed when everything that shall happen has happened, and a little later, for what must not.
func (w *world) awaitQuiet(i *incarnation) <-chan struct{} {
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		for began := w.at(); ; time.Sleep(50*time.Millisecond + 7) {
			w.mu.Lock()
			healed, left, ready := w.at() > w.plan.healed, w.quiet(), i.ready()
			spent := w.at() - max(began, w.plan.healed)
			late := spent > patience && spent > patience+w.hastyWaits() && !i.latest().dead
			if late {
				w.violation("P1", "not finished %v after the last fault: %s", spent, left)
			}
			over := late || i.latest().dead || healed && ready && left == ""
			w.mu.Unlock()
			if over {
				break
			}
		}
		time.Sleep(1500 * time.Millisecond)
	}()
	return quiet
}

// Reasons of anchors on another server with an operator's consent.
const (
	byOperator = "operator"      // a move, see command
	byFlag     = "gap: operator" // --accept-new-source: the server that answers when the relay first connects
	firstStart = "gap: first_start"
)

// command carries out what an operator orders from the running relay.
func (w *world) command(o operation) {
	w.mu.Lock()
	i := w.working()
	if i == nil || i.dead || i.relay == nil || len(w.log) == 0 {
		w.mu.Unlock()
		return
	}
	n := w.firstLog + int(o.row%uint64(len(w.log)-w.firstLog+1))
	if o.what == doTrigger || n == 0 {
		w.mu.Unlock()
		_ = i.relay.Sweep() // refused while it starts
		return
	}
	to, id := w.boundary(n), w.id
	w.note(i.life, "operator: move to", "", to.String(), n)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(i.ctx, 10*time.Second)
	defer cancel()
	_ = i.relay.MoveTo(ctx, id, to, byOperator) // refused while it starts or stops
}
