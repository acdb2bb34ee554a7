package sim

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// This file is for the seeds in which final rows go out again: FAILED ones slowly (retry.failed_every) and SENT ones that no consumer has
// finished (tables[].redeliver). consumers_test.go has those who finish them.

// againPlan says which rows go out again, and when.
type againPlan struct {
	failedEvery time.Duration   // 0: FAILED rows stay so
	undated     bool            // no column says when a row failed
	sent        table.Redeliver // without After: SENT rows stay so
	deaf        float64         // of questions to the consumers' service
}

// drawAgain is drawn apart, so that the rest of a seed is what it was.
func (p *plan) drawAgain(d *dice) {
	a := &p.again
	if d.chance(0.12) {
		a.failedEvery, a.undated = d.between(1500*time.Millisecond, 4*time.Second), d.chance(0.3)
		p.settings.Pipeline.MaxWaiting = 0 // reading shares of so few rows takes longer than the time between two retries
		p.settings.Again.Failed = map[string]time.Duration{tableName: a.failedEvery}
	}
	if d.chance(0.12) {
		a.sent = table.Redeliver{After: d.between(1200*time.Millisecond, 3*time.Second), Until: "consumed", Max: d.in(1, 3), Query: pick(d, "", "http://consumers/done")}
		p.settings.Again.Sent = map[string]table.Redeliver{tableName: a.sent}
	}
	if !p.quiet {
		a.deaf = pick(d, 0, 0, 0.3)
	}
}

// againAccount is what the checks know of a row that may go out again.
type againAccount struct {
	setBacks  int       // from FAILED to PENDING
	setBackAt time.Time // the last time
	counts    []*copies // one for each state directory
	copying   int       // the process that has a copy in flight
	copied    int       // the process whose last message of the row was a copy
	consumption
}

// copies is what a state directory and its processes did with a row that is SENT.
type copies struct {
	disk    *disk
	sent    int
	counted int       // on the disk
	at      time.Time // when it was counted last
}

// copiesOf returns the account of the row with a state directory.
func (r *row) copiesOf(d *disk) *copies {
	for _, c := range r.counts {
		if c.disk == d {
			return c
		}
	}
	c := &copies{disk: d}
	r.counts = append(r.counts, c)
	return c
}

// finalSince is what the table says of the time at which the row became final.
func (r *row) finalSince() time.Time {
	if r.final.IsZero() {
		return r.created
	}
	return r.final
}

// again is what the relay of a process needs for it; nil when no row goes out again.
func (i *incarnation) again(s *state) *relay.Again {
	if a := i.w.plan.again; a.failedEvery == 0 && a.sent.After == 0 {
		return nil
	}
	return &relay.Again{Rows: rows{i}, Memory: s}
}

// Final implements redelivery.Rows: a page in the order of the ids.
func (c rows) Final(ctx context.Context, name string, after table.Cursor, q table.FinalQuery) ([]outbox.Candidate, table.Cursor, error) {
	now, err := c.guarded(ctx, "final "+q.Status.String(), name)
	if err != nil {
		return nil, after, err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*row
	last := number(after.ID())
	for _, r := range w.table {
		if r.Table == name && r.status == q.Status && !r.visible.After(time.Now()) && r.number > last {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return a.number - b.number })
	next := table.CursorBehind("", true)
	if len(list) >= pageOfRows {
		list = list[:pageOfRows]
		next = table.CursorBehind(list[pageOfRows-1].ID, false)
	}
	var out []outbox.Candidate
	for _, r := range list {
		if q.Status == outbox.Failed && w.plan.again.undated || now.Sub(r.finalSince()) >= q.Age {
			out = append(out, w.candidate(r, now))
		}
	}
	w.note(c.i.life, "look at "+q.Status.String(), "", "", len(out))
	return out, next, nil
}

// DatesFailures implements redelivery.Rows.
func (c rows) DatesFailures(string) bool { return !c.i.w.plan.again.undated }

// RetryFailed implements redelivery.Rows. It checks that the time of each row has come.
func (c rows) RetryFailed(ctx context.Context, ids []outbox.Identity) (n int64, err error) {
	w := c.i.w
	ids = slices.Clone(ids)
	err = c.write(ctx, "retry failed", ids[0].Table, func() {
		for _, id := range ids {
			r := w.byID[id]
			if r == nil || r.gone || r.status != outbox.Failed || r.locked.After(time.Now()) {
				continue
			}
			w.checkSetBack(c.i, r)
			r.status, r.due = outbox.Pending, r.retriedFrom()
			r.setBacks++
			r.setBackAt = time.Now()
			n++
			w.note(c.i.life, "set back", name(id), "", r.setBacks)
		}
		if n > 0 && w.plan.ownLog {
			w.append(&entry{reason: "relay's update"})
		}
	})
	return n, err
}

// retriedFrom is the due time of a FAILED row that becomes PENDING: a second ago, or since when it has been FAILED first.
func (r *row) retriedFrom() time.Time {
	due := time.Now().Add(-time.Second)
	for _, since := range []time.Time{r.due, r.final} {
		if !r.final.IsZero() && !since.IsZero() && since.Before(due) {
			due = since
		}
	}
	return due
}

// checkSetBack checks a FAILED row that becomes PENDING: it has been FAILED for as long as configured. Where that time is
// unknown, all rows are tried in passes, each row once in a pass. Callers hold mu.
func (w *world) checkSetBack(i *incarnation, r *row) {
	every := w.plan.again.failedEvery
	switch {
	case w.plan.again.undated && r.setBacks > 0 && !r.setBackAt.Before(i.disk.passAt[r.Table]):
		w.violation("failed", "%s is tried again twice in one pass", name(r.Identity))
	case w.plan.again.undated:
	case time.Since(r.finalSince()) < every:
		w.violation("failed", "%s is tried again when it has been FAILED for %v of %v", name(r.Identity), time.Since(r.finalSince()), every)
	}
}

// Pieces implements fallback.Rows and redelivery.Rows: rows are read back two at a time.
func (c rows) Pieces(ctx context.Context, ids []outbox.Identity) ([][]outbox.Identity, error) {
	if _, err := c.guarded(ctx, "pieces", ids[0].Table); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(ids, 2)), nil
}

// ReadSent implements redelivery.Rows.
func (c rows) ReadSent(ctx context.Context, ids []outbox.Identity) (out []*outbox.Message, err error) {
	if _, err := c.guarded(ctx, "read sent", ids[0].Table); err != nil {
		return nil, err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if r := w.byID[id]; r != nil && !r.gone && r.status == outbox.Sent {
			m := r.message()
			m.Path, m.DueAt = outbox.PathRedelivery, time.Time{}
			out = append(out, m)
		}
	}
	return out, nil
}

// MarkDone implements redelivery.Rows.
func (c rows) MarkDone(ctx context.Context, ids []outbox.Identity) (n int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	w := c.i.w
	ids = slices.Clone(ids)
	err = c.write(ctx, "mark done", ids[0].Table, func() {
		if n = w.markDone(ids); n > 0 && w.plan.ownLog {
			w.append(&entry{reason: "relay's update"})
		}
	})
	return n, err
}

// copyHanded checks a copy of a row that is SENT, which a process gives to its sink. Callers hold mu.
func (w *world) copyHanded(i *incarnation, r *row) {
	c := r.copiesOf(i.disk)
	switch {
	case c.sent >= c.counted:
		w.violation("redelivery", "%s goes out again for time %d, and the disk has counted %d", name(r.Identity), c.sent+1, c.counted)
	case r.told:
		w.violation("redelivery", "%s goes out again though the consumers' service said that it is done", name(r.Identity))
	case w.plan.again.sent.Query != "" && !r.of(i.life).asked:
		w.violation("redelivery", "%s goes out again without an answer of the consumers' service", name(r.Identity))
	case r.of(i.life).handed:
		w.violation("P3", "%s goes out again while the sink has it", name(r.Identity))
	}
	c.sent++
	r.attempts++
	r.copying, r.copied, r.of(i.life).asked = i.life, i.life, false
}

// copyAnswered notes what a process got as the result of a copy. Callers hold mu.
func (w *world) copyAnswered(i *incarnation, r *row, o outbox.Outcome) {
	w.note(i.life, "answer to a copy", name(r.Identity), o.Class.String(), 0)
	r.copying = 0
	if o.Class == outbox.ClassTopic {
		i.topics[r.topic] = true
	}
}

// checkNoCopy looks at a completion: whatever the broker says of a copy, the row stays SENT and nothing is written. A copy has no claim; the
// release of one is from a sweep that had read the row before it was SENT, and matches no row. Callers hold mu.
func (w *world) checkNoCopy(i *incarnation, r *row, s outbox.Completion) {
	stale := s.Action == outbox.ActionRelease && s.Claim != "" && r.status == outbox.Sent
	if r.copied == i.life && !r.touched && !stale {
		w.violation("redelivery", "a copy of %s has a completion, %s", name(r.Identity), s.Action)
	}
}

// unfinishedAgain returns why a final row must be sent again; "" when it need not. Callers hold mu.
func (w *world) unfinishedAgain(r *row) string {
	a := w.plan.again
	switch {
	case r.status == outbox.Failed && a.failedEvery > 0 && (!r.poison || r.setBacks == 0):
		return "is FAILED, and is to be tried again"
	case r.status != outbox.Sent || a.sent.After == 0 || r.touched:
		return ""
	case r.done:
		return "is SENT though the consumers' service says that it is done"
	case !slices.ContainsFunc(r.counts, func(c *copies) bool { return c.counted >= a.sent.Max }):
		return "is SENT, and is to go out again"
	}
	return ""
}

// KeepRedeliveries implements redelivery.Memory. It checks what is counted.
func (s *state) KeepRedeliveries(put []table.Waiting, drop []outbox.Identity) error {
	if s.i.step("before count") {
		return errDead
	}
	w := s.i.w
	w.mu.Lock()
	for _, one := range put {
		s.checkCount(one)
	}
	for _, id := range drop {
		if r := w.byID[id]; r != nil && !r.gone && !r.touched && !r.told && r.status == outbox.Sent {
			w.violation("redelivery", "the redeliveries of %s are forgotten, and it is SENT", name(id))
		}
	}
	dead := s.i.dead
	w.mu.Unlock()
	if dead { // its directory may be gone
		return errDead
	}
	err := s.Waits.KeepRedeliveries(put, drop)
	w.mu.Lock()
	if dead = s.i.dead; !dead {
		s.counted(put, drop)
		if err != nil {
			w.violation("disk", "count of redeliveries: %v", err)
		}
	}
	w.mu.Unlock()
	if dead || s.i.step("after count") {
		return errDead
	}
	return err
}

// checkCount checks a count that is about to be written. Callers hold mu.
func (s *state) checkCount(one table.Waiting) {
	w, rule := s.i.w, s.i.w.plan.again.sent
	r := w.byID[one.Identity]
	if r == nil {
		w.violation("P2", "a redelivery of no committed row: %+v", one.Identity)
		return
	}
	c := r.copiesOf(s.i.disk)
	switch {
	case one.Attempts > rule.Max:
		w.violation("redelivery", "%s is to go out again %d times, and may %d times", name(r.Identity), one.Attempts, rule.Max)
	case one.Attempts < c.counted:
		w.violation("redelivery", "the count of %s goes back from %d to %d", name(r.Identity), c.counted, one.Attempts)
	case r.touched || r.gone:
	case time.Since(r.finalSince()) < rule.After:
		w.violation("redelivery", "%s is to go out again when it has been SENT for %v of %v", name(r.Identity), time.Since(r.finalSince()), rule.After)
	case !c.at.IsZero() && time.Since(c.at) < rule.After-2*time.Millisecond: // the disk has milliseconds, of the time before it was asked to write
		w.violation("redelivery", "%s is to go out again %v after the last time, not %v", name(r.Identity), time.Since(c.at), rule.After)
	}
}

// counted notes what is on the disk. Callers hold mu.
func (s *state) counted(put []table.Waiting, drop []outbox.Identity) {
	w := s.i.w
	for _, one := range put {
		c := w.byID[one.Identity].copiesOf(s.i.disk)
		c.counted, c.at = one.Attempts, time.Now()
		w.note(s.i.life, "counted", name(one.Identity), "", one.Attempts)
	}
	for _, id := range drop {
		*w.byID[id].copiesOf(s.i.disk) = copies{disk: s.i.disk}
	}
}

// checkCounts compares the counts after a start with what must be there. Callers hold mu.
func (s *state) checkCounts(list []table.Waiting) {
	w, has := s.i.w, map[outbox.Identity]int{}
	for _, one := range list {
		has[one.Identity] = one.Attempts
	}
	for _, r := range w.lives {
		c := r.copiesOf(s.i.disk)
		if n := has[r.Identity]; n < c.counted {
			w.violation("redelivery", "the reopened store has counted %d redeliveries of %s, it had %d", n, name(r.Identity), c.counted)
		}
		c.counted = has[r.Identity]
	}
}

// forgetCounts is for a state directory that is lost. Callers hold mu.
func (r *row) forgetCounts(d *disk) {
	r.counts = slices.DeleteFunc(r.counts, func(c *copies) bool { return c.disk == d })
}

// Keep implements table.Waits: of this table only the passes on FAILED rows that do not say when they failed.
func (s *state) Keep(put []table.Waiting, drop []outbox.Identity) error {
	if s.i.step("before pass") {
		return errDead
	}
	w := s.i.w
	w.mu.Lock()
	name := put[0].ID
	every, last := w.plan.again.failedEvery, s.i.disk.passAt[name]
	if !last.IsZero() && time.Since(last) < every-time.Millisecond {
		w.violation("failed", "a pass over FAILED rows begins %v after the last one, not %v", time.Since(last), every)
	}
	dead := s.i.dead
	w.mu.Unlock()
	if dead {
		return errDead
	}
	err := s.Waits.Keep(put, drop)
	w.mu.Lock()
	if dead = s.i.dead; !dead {
		s.i.disk.pass(name)
	}
	w.mu.Unlock()
	if dead || s.i.step("after pass") {
		return errDead
	}
	return err
}

// pass notes a pass over the FAILED rows of a table. Callers hold mu.
func (d *disk) pass(name string) {
	if d.passAt == nil {
		d.passAt = map[string]time.Time{}
	}
	d.passAt[name] = time.Now()
}
