package fallback

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// nearlyDue is how much too early a row may be looked at: it is due by the time it is claimed, which the table allows to be as much
// earlier, and no second look is needed.
const nearlyDue = 5 * time.Millisecond

// timerRetry is the wait after passes that failed in a row: a statement that failed once, for a deadlock, costs a moment.
var timerRetry = outbox.Backoff{Schedule: []time.Duration{100 * time.Millisecond, 2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second}}

// serve brings the rows of one table to the sink as they become due, until ctx ends. Whatever goes wrong leaves them to the sweep.
func (s *Sweeper) serve(ctx context.Context, name string) {
	t := s.triggers.timers[name]
	for failures := 0; awaitTimers(ctx, t); {
		due, look, late := t.take(time.Now(), s.cfg.Batch)
		behind, err := s.pass(ctx, name, due, look)
		late = late || behind
		switch {
		case ctx.Err() != nil:
		case notNow(err):
			t.notNow(time.Now().Add(s.cfg.Interval))
		case err != nil: // the sweep says what is wrong, if it lasts
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

// awaitTimers waits until there is something to do; it reports false when ctx ends first.
func awaitTimers(ctx context.Context, t *timers) bool {
	for ctx.Err() == nil {
		wait := t.wait(time.Now())
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}

// pass publishes the rows that are due and then looks at the table for the next ones, if it is time. behind reports that the log, or a status
// that is on its way to the table, is too far behind for some rows: they are the sweep's.
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

// shown leaves out the rows that the log may still bring; nobody waits for them. end is where the others lie before. A row was seen in the
// table at its end or earlier, mostly long ago, so that the log was offered so far as a rule. A row whose end was read before the position was
// set elsewhere is the sweep's; it does not affect the others.
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

// lookAhead enters the rows that become due next.
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

// takeDue looks at rows whose time has come and brings those to the sink that are due by the database's clock. What was postponed is
// entered again; what is held, claimed, final or gone is forgotten.
// They lie before end in the log, which was offered so far. A row that was deleted and written again under its identity since is the one
// that the log may show later. One that somebody still has, as whose last refusal is on its way to the table, is looked at again in a moment;
// behind reports that one has waited too long for that.
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
	reserved, alone := s.reserve(name, take)
	if len(alone) > 0 {
		s.triggers.timers[name].leftAlone()
	}
	if len(reserved)+len(alone) < len(take) {
		behind = s.lookAgain(name, due, take, reserved, alone)
	}
	if len(reserved) == 0 {
		return behind, nil
	}
	return behind, s.publish(ctx, &round{path: outbox.PathTimer}, name, asked, reserved, nil)
}

// lookAgain enters those of the rows again that are neither reserved nor to be left alone, because somebody has them.
func (s *Sweeper) lookAgain(name string, due []timer, take, reserved, alone []outbox.Candidate) (behind bool) {
	had := map[outbox.Identity]bool{}
	for _, c := range take {
		had[c.Identity] = true
	}
	for _, c := range slices.Concat(reserved, alone) {
		delete(had, c.Identity)
	}
	now := time.Now()
	for _, one := range due {
		if had[one.row] {
			behind = !s.triggers.timers[name].again(one, now) || behind
		}
	}
	return behind
}

// later enters a row that waits, as a query shows it that was asked at a time, unless a look will find it.
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
