package sim

import (
	"context"
	"time"
)

// write is call for a statement that changes rows. It runs effect on the server, at once or, if the process was killed while the
// statement ran or waited for a lock, perhaps after its death; the reply may be lost.
func (c rows) write(ctx context.Context, what, table string, effect func()) error {
	return c.writeIf(ctx, what, table, func() bool { return true }, func(_, _ bool) { effect() })
}

// writeIf is write with a question that the process asks right before it sends the statement. effect has the answer, and whether the statement has
// waited for a lock since.
func (c rows) writeIf(ctx context.Context, what, table string, ask func() bool, effect func(yes, waited bool)) error {
	d, err := c.sent(ctx, what, table)
	if err != nil {
		return err
	}
	w := c.i.w
	asked, sent := ask(), time.Now()
	if left, err := c.awaitTable(ctx, d, table); err != nil {
		if left > 0 && d.chance(0.5) { // the server has the statement, and its connection is closed
			time.AfterFunc(left, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.note(c.i.life, what, "", "after a lock", 0)
				effect(asked, true)
			})
		}
		return err
	}
	waited := time.Since(sent) > 0
	err = sleep(ctx, d.between(10*time.Microsecond, time.Millisecond))
	w.mu.Lock()
	if (c.i.dead || err != nil) && !d.chance(0.5) {
		w.mu.Unlock()
		return errDead // cut off before it arrived
	}
	effect(asked, waited)
	lost := d.chance(w.plan.errors) && w.at() < w.plan.healed
	if lost {
		w.note(c.i.life, what, "", "reply lost", 0)
	}
	dead := c.i.dead
	w.mu.Unlock()
	switch {
	case dead || c.i.step("after "+what):
		return errDead
	case err != nil:
		return err
	case lost:
		return errLost
	}
	return sleep(ctx, d.between(10*time.Microsecond, time.Millisecond))
}
