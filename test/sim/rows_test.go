package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// rows is app.Rows: the statements of outbox/table with their guards, on a connection that fails now and then.
type rows struct{ i *incarnation }

// call models a statement to the server: time, an outage, or a drawn error. It returns the dice for the caller's further draws.
func (c rows) call(ctx context.Context, what string) (*dice, error) {
	w := c.i.w
	w.mu.Lock()
	d := w.dice(what, uint64(c.i.life))
	w.mu.Unlock()
	if err := sleep(ctx, d.between(time.Microsecond, 100*time.Microsecond)); err != nil {
		return nil, err
	}
	c.i.awaitWake()
	if c.i.step("before " + what) {
		return nil, errDead
	}
	w.mu.Lock()
	down, isDown := c.i.databaseDown()
	w.mu.Unlock()
	if isDown && down.silent {
		if err := sleep(ctx, down.to-w.at()+d.between(0, time.Millisecond)); err != nil {
			return nil, err
		}
		return nil, errLost
	}
	if err := sleep(ctx, d.between(100*time.Microsecond, 2*time.Millisecond)); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.i.dead:
		return nil, errDead
	case isDown:
		return nil, errDown
	case d.chance(w.plan.errors) && w.at() < w.plan.healed:
		w.note(c.i.life, what, "", "error", 0)
		return nil, errDrawn
	}
	return d, nil
}

// guarded is sent for a statement that changes nothing: it has waited for a lock on the whole table. now is what the statement takes for NOW, the time
// before it waited; rows that were made since are ahead of it.
func (c rows) guarded(ctx context.Context, what, table string) (now time.Time, err error) {
	d, err := c.sent(ctx, what, table)
	if err != nil {
		return time.Time{}, err
	}
	now = time.Now()
	_, err = c.awaitTable(ctx, d, table)
	return now, err
}

// sent is call on a connection of the tables' pool, which asks the relay which server it may talk to.
func (c rows) sent(ctx context.Context, what, table string) (*dice, error) {
	d, err := c.call(ctx, ofTable(what, table))
	if err != nil {
		return nil, err
	}
	w := c.i.w
	w.mu.Lock()
	old, id := c.i.peer, w.id
	c.i.peer = server.ID{}
	w.mu.Unlock()
	switch {
	case old == id:
	case old != server.ID{}:
		return nil, errLost // the server of this connection is gone
	default:
		if err := c.i.gate.Guard(ctx, id); err != nil {
			return nil, &server.RefusedError{ID: id, Err: err}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.i.peer = id
	if c.i.settled && c.i.mayRefuse() {
		w.violation("identity", "a statement (%s) on a server that was not accepted", what)
	}
	return d, nil
}

// Apply implements ack.Tables.
func (c rows) Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	if len(batch) > 0 && batch[0].LogOnly {
		return nil, c.keep(ctx, batch)
	}
	if err := c.awaitLocks(ctx, batch); err != nil {
		return nil, err
	}
	var refused []outbox.WriteError
	w := c.i.w
	batch = slices.Clone(batch) // of a statement that outlives the process
	if len(batch) == 0 || len(batch) > 500 {
		return nil, fmt.Errorf("a batch of %d rows", len(batch))
	}
	err := c.writeIf(ctx, "apply", batch[0].Table, func() bool { return c.mayJudge(batch) }, func(valid, waited bool) {
		changed := false
		for _, s := range batch {
			r := w.byID[s.Identity]
			if !valid && counted(s) {
				refused = append(refused, outbox.WriteError{Completion: s, Fenced: true})
				r.of(c.i.life).deferred = true
				if s.Claim == "" {
					continue
				}
				s.Action = outbox.ActionRelease
			}
			switch {
			case r == nil:
				w.violation("P2", "a completion for no committed row: %+v", s.Identity)
			case r.locked.After(time.Now()) && !r.gone:
				refused = append(refused, outbox.WriteError{Completion: s, Retryable: true})
			case s.Action == outbox.ActionMarkSent && r.unwritable && !r.gone && r.status != outbox.Sent && r.status != outbox.Held: // the guard comes before the trigger
				refused = append(refused, outbox.WriteError{Completion: s, Reason: "a trigger"})
			default:
				settled := w.settle(c.i, r, s)
				if changed = changed || settled; settled && counted(s) && !waited {
					w.checkJudgement(c.i, s)
				}
			}
		}
		if changed && w.plan.ownLog {
			w.append(&entry{reason: "relay's update"})
		}
	})
	if err != nil {
		return nil, err
	}
	left := map[outbox.Identity]bool{}
	for _, u := range refused {
		left[u.Identity] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range batch {
		if r := w.byID[s.Identity]; r != nil && s.Action == outbox.ActionMarkSent && !left[s.Identity] {
			r.shown.set(c.i.disk, true)
		}
	}
	return refused, nil
}

// counted reports whether a completion is an attempt or a failure.
func counted(s outbox.Completion) bool {
	return s.Action == outbox.ActionRetry || s.Action == outbox.ActionFail
}

// mayJudge is what a process asks before it sends a statement: whether its lease is valid, where there are attempts or failures in it. It checks
// the answer.
func (c rows) mayJudge(batch []outbox.Completion) bool {
	judged := slices.IndexFunc(batch, counted)
	if judged < 0 {
		return true
	}
	if c.i.sink != nil && c.i.sink.may != nil && !c.i.sink.may() {
		return false
	}
	c.i.w.mu.Lock()
	defer c.i.w.mu.Unlock()
	c.i.w.checkJudgement(c.i, batch[judged])
	return true
}

// awaitLocks waits for rows whose transaction holds their locks still.
func (c rows) awaitLocks(ctx context.Context, batch []outbox.Completion) error {
	w := c.i.w
	w.mu.Lock()
	var until time.Time
	for _, s := range batch {
		if r := w.byID[s.Identity]; r != nil && r.visible.After(until) {
			until = r.visible
		}
	}
	w.mu.Unlock()
	return sleep(ctx, max(0, time.Until(until)))
}

// settle is the UPDATE of one completion under the guards of the state machine. Callers hold mu.
func (w *world) settle(i *incarnation, r *row, s outbox.Completion) (changed bool) {
	w.checkNoCopy(i, r, s)
	open := r.status == outbox.Pending || r.status == outbox.Sending
	before := r.status
	switch {
	case r.gone:
		return false
	case s.Action == outbox.ActionMarkSent && (open || r.status == outbox.Failed):
		r.status = outbox.Sent
		if r.copySeen = i.read[r]; r.records == 0 && !r.copySeen { // a copy that a redelivery has made is no record, and may be found
			w.violation("P1", "%s is shown as SENT, and the broker has no copy", name(r.Identity))
		}
	case s.Action == outbox.ActionRetry && open && r.retries == s.RetryCount:
		r.status, r.due = outbox.Pending, time.Now().Add(s.Delay)
		r.retries++
		w.loseInterest(r)
		if r.retries > r.burnt() || r.retries > w.budget(r) {
			w.violation("budget", "%s has %d retries of %d after %d refusals and %d silences", name(r.Identity), r.retries, w.budget(r), r.refused, r.unknown)
		}
	case s.Action == outbox.ActionFail && open && r.retries == s.RetryCount:
		r.status = outbox.Failed
		if !r.poison && r.burnt() <= w.budget(r) {
			w.violation("budget", "%s FAILED after %d refusals and %d silences of %d", name(r.Identity), r.refused, r.unknown, w.budget(r))
		}
	case s.Action == outbox.ActionRelease && r.status == outbox.Sending && r.token == s.Claim:
		r.status = outbox.Pending
	default:
		return false
	}
	r.final = time.Now()
	w.note(i.life, "update", name(r.Identity), before.String()+" -> "+r.status.String()+" by "+s.Action.String(), r.retries)
	return true
}

// States implements recovery.Checker.
func (c rows) States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error) {
	now, err := c.guarded(ctx, "states", ids[0].Table)
	if err != nil {
		return nil, err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []outbox.Candidate
	for _, id := range ids {
		r := w.byID[id]
		if r == nil {
			w.violation("P2", "asked for no committed row: %+v", id)
			continue
		}
		f := r.of(c.i.life)
		if r.gone || r.visible.After(time.Now()) {
			f.told = true
			w.disturb(c.i, r)
			w.note(c.i.life, "zone", name(id), "not found", 0)
			continue
		}
		s := w.candidate(r, now)
		if f.told = f.told || s.Status != outbox.Pending || s.Waiting; f.told { // timers ask, too
			w.disturb(c.i, r)
		}
		f.told = f.told || w.overtakenInZone(c.i, r)
		w.note(c.i.life, "zone", name(id), s.Status.String(), s.RetryCount)
		out = append(out, s)
	}
	return out, nil
}

// Untouched implements recovery.Checker.
func (c rows) Untouched(ctx context.Context, ids []outbox.Identity) (bool, error) {
	now, err := c.guarded(ctx, "states", ids[0].Table)
	if err != nil {
		return false, err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		r := w.byID[id]
		if r == nil {
			w.violation("P2", "asked for no committed row: %+v", id)
			return false, nil
		}
		if s := w.candidate(r, now); r.gone || r.visible.After(time.Now()) || s.Status != outbox.Pending || s.Waiting || s.RetryCount > 0 {
			return false, nil
		}
	}
	for _, id := range ids {
		w.note(c.i.life, "zone", name(id), "untouched", 0)
	}
	return true, nil
}

// candidate is what a statement shows of a row by its NOW.
func (w *world) candidate(r *row, now time.Time) outbox.Candidate {
	s := outbox.Candidate{Identity: r.Identity, Status: r.status, RetryCount: r.retries, Topic: r.topic, ClaimToken: r.token}
	if w.orderKey(r) != "" {
		s.Key = r.key
	}
	s.Untouched = w.plan.stamped && r.status == outbox.Pending && r.token == "" && r.final.IsZero()
	if !r.due.IsZero() || r.grace > 0 {
		left := r.due.Sub(now)
		if r.grace > 0 {
			left = max(left, r.created.Add(r.graceShown()).Sub(now))
		}
		s.Waiting = r.status == outbox.Pending && left > 0
		s.DueInMilli = int64((left + time.Millisecond - 1) / time.Millisecond)
	}
	return s
}

const tokenForm = "2006-01-02 15:04:05.000"

func tokenTime(text string) time.Time {
	t, err := time.Parse(tokenForm, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Claim implements fallback.Rows.
func (c rows) Claim(ctx context.Context, candidates []outbox.Candidate) (token string, err error) {
	w := c.i.w
	candidates = slices.Clone(candidates)
	w.mu.Lock()
	for _, s := range candidates {
		if r := w.byID[s.Identity]; r != nil && r.of(c.i.life).sweptAt.IsZero() {
			r.of(c.i.life).sweptAt = time.Now()
		}
	}
	w.mu.Unlock()
	token = time.Now().UTC().Format(tokenForm)
	err = c.write(ctx, "claim", candidates[0].Table, func() {
		changed := false
		for _, s := range candidates {
			r := w.byID[s.Identity]
			if r == nil || r.gone || r.status != s.Status || r.locked.After(time.Now()) {
				continue
			}
			if r.status == outbox.Pending && w.mayBeClaimed(r) || r.status == outbox.Sending && r.token == s.ClaimToken {
				r.status, r.token, r.of(c.i.life).taken = outbox.Sending, token, time.Now()
				changed = true
				w.note(c.i.life, "claim", name(r.Identity), token, r.retries)
			}
		}
		if changed && w.plan.ownLog {
			w.append(&entry{reason: "relay's claim"})
		}
	})
	return token, err
}

// ReadBack implements fallback.Rows.
func (c rows) ReadBack(ctx context.Context, token string, ids []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error) {
	if _, err := c.guarded(ctx, "read back", ids[0].Table); err != nil {
		return nil, nil, err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*outbox.Message
	for _, id := range ids {
		if r := w.byID[id]; r != nil && !r.gone && r.status == outbox.Sending && r.token == token {
			m := r.message()
			m.Path, m.Claim = outbox.PathSweep, token
			out = append(out, m)
		}
	}
	return out, nil, nil
}

// source is app.Source.
type source struct{ i *incarnation }

// Look implements app.Source.
func (s source) Look(ctx context.Context) (server.Info, outbox.Position, error) {
	if _, err := rows(s).call(ctx, "look"); err != nil {
		return server.Info{}, outbox.Position{}, err
	}
	w := s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.info(), w.end(), nil
}

// End implements app.Source.
func (s source) End(ctx context.Context) (outbox.Position, error) {
	if _, err := rows(s).call(ctx, "end"); err != nil {
		return outbox.Position{}, err
	}
	s.i.w.mu.Lock()
	defer s.i.w.mu.Unlock()
	return s.i.w.end(), nil
}

// info is what the server says of itself. Callers hold mu.
func (w *world) info() server.Info {
	info := server.Info{ID: w.id, LogBin: true, BinlogFormat: "ROW", GTID: w.plan.logging != mysqlFiles, Executed: w.gtids(w.executed)}
	if w.flavor == outbox.MariaDB {
		info.Executed = w.binlogState()
	}
	return info
}
