package fallback

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// nearlyDue is how much too early a row may be looked at: it is due by the time of its claim, which the table allows to be that
// much earlier, and no second look is needed.
const nearlyDue = 5 * time.Millisecond

// timerRetry is the wait after consecutive failed passes: a statement that failed once, for a deadlock, costs a short time.
var timerRetry = outbox.Backoff{Schedule: []time.Duration{100 * time.Millisecond, 2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second}}

// serve sends the rows of one table to the sink as they become due, until ctx ends. The sweep publishes rows that it misses.
func (s *Sweeper) serve(ctx context.Context, name string) {
	t := s.triggers.timers[name]
	for failures := 0; await(ctx, t.wake, func() time.Duration { return t.wait(time.Now()) }); {
		due, look, late := t.take(time.Now(), s.cfg.Batch)
		behind, err := s.pass(ctx, name, due, look)
		late = late || behind
		switch {
		case ctx.Err() != nil:
		case notNow(err):
			t.notNow(time.Now().Add(s.cfg.Interval))
		case err != nil: // the sweep reports the problem, if it lasts
			t.failed(time.Now().Add(timerRetry.Delay(failures, s.cfg.Random())), look)
			failures++
			late = late || len(due) > 0
		default:
			failures = 0
		}
		if late {
			s.triggers.Trigger()
		}
	}
}

// pass publishes the rows that are due and then looks at the table for the next ones, if it is time. behind reports that the log,
// or a status that is being written, is too far behind for some rows: the sweep publishes them.
func (s *Sweeper) pass(ctx context.Context, name string, due []timer, look bool) (behind bool, err error) {
	rows, end, behind, err := s.shown(name, due)
	if err == nil && len(rows) > 0 {
		var busy bool
		busy, err = s.takeDue(ctx, name, rows, end)
		behind = behind || busy
	}
	if look {
		err = errors.Join(err, s.lookAhead(ctx, name))
	}
	return behind, err
}

// shown leaves out rows that the log may still bring; it does not wait for them. end is after the others. A row was found in the
// table at its end or earlier, mostly long ago, so usually the log was offered up to there. The sweep publishes a row whose end
// was read before the position moved; it does not affect the others.
func (s *Sweeper) shown(name string, due []timer) (rows []timer, end outbox.LogEnd, behind bool, err error) {
	now := time.Now()
	for _, one := range due {
		var at outbox.LogEnd
		if one.end != nil {
			at = *one.end
		}
		shown, err := s.flow.Shown(at)
		switch {
		case errors.Is(err, outbox.ErrMoved):
			behind = true
			continue
		case err != nil:
			return nil, end, behind, err
		case !shown:
			behind = !s.triggers.timers[name].again(one, now) || behind
			continue
		case end.Compare(at.Position) < 0:
			end = at
		}
		rows = append(rows, one)
	}
	return rows, end, behind, nil
}

// lookAhead adds the rows that become due next.
func (s *Sweeper) lookAhead(ctx context.Context, name string) error {
	if err := s.looks.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.looks.Release(1)
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	t := s.triggers.timers[name]
	began := time.Now()
	rows, err := s.rows.Upcoming(ctx, name, -t.from(), t.ahead, t.limit)
	if err != nil {
		return err
	}
	var end outbox.LogEnd
	if len(rows) > 0 {
		if end, err = s.logEnd(ctx); err != nil {
			return err
		}
	}
	s.metrics.rows(name, rowWaiting).Add(float64(len(rows)))
	t.looked(began, rows, &end, s.cfg.lookEvery())
	return nil
}

// takeDue reads rows whose time has come and sends those to the sink that are due by the database's clock. Postponed rows are
// added again; held, claimed, final or missing rows are dropped. They are before end in the log, which was offered up to there;
// only a row that was deleted and written again under its identity since then may come from the log later. An owned row, for
// example one whose last refusal is being written, is looked at again shortly; behind reports that one has waited too long for
// that.
func (s *Sweeper) takeDue(ctx context.Context, name string, due []timer, end outbox.LogEnd) (behind bool, err error) {
	asked := time.Now()
	ids := make([]outbox.Identity, len(due))
	for i := range due {
		ids[i] = due[i].row
	}
	rows, err := s.states(ctx, ids)
	if err != nil {
		return false, err
	}
	take := rows[:0]
	for _, c := range rows {
		switch {
		case c.Status != outbox.Pending:
		case c.Waiting && c.DueInMilli > nearlyDue.Milliseconds():
			s.later(name, &c, asked, &end)
		default:
			take = append(take, c)
		}
	}
	if len(take) == 0 {
		return false, nil
	}
	free, alone := s.reserve(name, take)
	if len(alone) > 0 {
		s.triggers.timers[name].leftAlone()
	}
	if len(free)+len(alone) < len(take) {
		behind = s.lookAgain(name, due, take, slices.Concat(free, alone))
	}
	if len(free) == 0 {
		return behind, nil
	}
	return behind, s.publish(ctx, &list{run: &run{path: outbox.PathTimer}, name: name}, asked, free, nil)
}

// lookAgain adds the owned rows again: those that Reserve has not returned. While there is no room in the timers they are left to
// the sweep, so that they delay no rows that become due later.
func (s *Sweeper) lookAgain(name string, due []timer, take, returned []outbox.Candidate) (behind bool) {
	owned := map[outbox.Identity]bool{}
	for _, c := range take {
		owned[c.Identity] = true
	}
	for _, c := range returned {
		delete(owned, c.Identity)
	}
	if s.triggers.timers[name].yield() {
		return true
	}
	now := time.Now()
	for _, one := range due {
		if owned[one.row] {
			behind = !s.triggers.timers[name].again(one, now) || behind
		}
	}
	return behind
}

// later adds a waiting row from a query at the time asked, unless a look will find it.
func (s *Sweeper) later(name string, c *outbox.Candidate, asked time.Time, end *outbox.LogEnd) {
	if t := s.triggers.timers[name]; time.Duration(c.DueInMilli)*time.Millisecond <= t.ahead {
		t.add(c.Identity, dueTime(asked, c), end)
	}
}

func (s *Sweeper) states(ctx context.Context, rows []outbox.Identity) ([]outbox.Candidate, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.rows.States(ctx, rows)
}
