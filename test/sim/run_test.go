package sim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// patience is how long, in virtual time, everything may take once nothing fails any more: the longest pauses of the relay
// are a minute (a parked topic).
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
	for _, l := range w.plan.lives {
		i := w.start(l)
		switch l.end {
		case endRun:
			w.finishRun(i)
		case endStop:
			w.stop(i, l)
		default:
			w.awaitKill(i, l)
		}
		w.between(l)
	}
	w.background.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkEnd()
}

// awaitKill waits for the planned kill, at the longest until everything is over.
func (w *world) awaitKill(i *incarnation, l life) {
	timer := time.NewTimer(w.plan.work)
	defer timer.Stop()
	select {
	case <-i.killed:
		return
	case <-timer.C:
		i.kill("at last")
	case err := <-i.ended:
		w.mu.Lock()
		dead := i.dead
		if !dead {
			w.violation("run", "the relay ended by itself: %v", err)
		}
		w.mu.Unlock()
	}
}

// stop is SIGTERM at the planned time.
func (w *world) stop(i *incarnation, l life) {
	timer := time.NewTimer(l.at + 3*time.Nanosecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		w.terminate(i)
	case err := <-i.ended:
		w.mu.Lock()
		w.violation("run", "the relay ended by itself: %v", err)
		w.mu.Unlock()
	}
}

// stopLimit is how long a stop may take: three stages of Stop at the most, the flush, and statements on their way.
const stopLimit = 40 * time.Second

// terminate stops a process cleanly: what the broker has acknowledged to it is in the journal or in the table.
func (w *world) terminate(i *incarnation) {
	w.mu.Lock()
	w.note(i.life, "TERM", "", "", 0)
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
	w.note(i.life, "stopped", "", "", 0)
	if err != nil {
		w.violation("stop", "%v", err)
	}
	for _, r := range w.lives {
		if r.acked == i.life && !r.journalled && !r.gone && r.status != outbox.Sent && !r.touched {
			w.violation("P3", "a clean stop forgot that %s was acknowledged", name(r.Identity))
		}
	}
	w.checkBugs(i)
	i.dead = true // what is still on its way belongs to nobody
	i.cut()
}

func (i *incarnation) cut() {
	if i.sink != nil {
		i.sink.flying = nil
	}
}

// between is the time without a process.
func (w *world) between(l life) {
	if l.end == endRun {
		return
	}
	w.mu.Lock()
	if l.lose && !w.lost {
		w.files = vfs.NewCrashableMem()
		w.loseState("directory")
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

// finishRun waits until everything that shall happen has happened, and ends the last process cleanly.
func (w *world) finishRun(i *incarnation) {
	limit := time.NewTimer(w.plan.healed + patience)
	defer limit.Stop()
	for done := false; !done; {
		tick := time.NewTimer(50*time.Millisecond + 7)
		select {
		case <-tick.C:
			w.mu.Lock()
			done = w.at() > w.plan.healed && i.relay != nil && i.relay.Ready() && w.quiet() == ""
			w.mu.Unlock()
		case err := <-i.ended:
			w.mu.Lock()
			w.violation("run", "the relay ended by itself: %v", err)
			w.mu.Unlock()
			return
		case <-limit.C:
			w.mu.Lock()
			w.violation("P1", "not finished %v after the last fault: %s", patience, w.quiet())
			w.mu.Unlock()
			done = true
		}
		tick.Stop()
	}
	time.Sleep(1500 * time.Millisecond) // for what must not happen any more
	w.terminate(i)
	w.checkJournalEmpty(i)
}

// command carries out what an operator orders from the running relay.
func (w *world) command(o operation) {
	w.mu.Lock()
	i := w.now_
	if i == nil || i.dead || i.relay == nil || len(w.log) == 0 {
		w.mu.Unlock()
		return
	}
	n := w.firstLog + int(o.row%uint64(len(w.log)-w.firstLog+1))
	if o.what == doNudge || n == 0 {
		w.mu.Unlock()
		_ = i.relay.Sweep() // refused while it starts
		return
	}
	to, id := w.boundary(n), w.id
	w.note(i.life, "operator: move to", "", to.String(), n)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(i.ctx, 10*time.Second)
	defer cancel()
	_ = i.relay.MoveTo(ctx, id, to, "operator") // refused while it starts or stops
}
