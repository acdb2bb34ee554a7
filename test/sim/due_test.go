package sim

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// claimAhead is how far ahead of the clock a claim is taken for one of now, as outbox/table has it.
const claimAhead = 5 * time.Second

// Due implements fallback.Rows: one list in the order of the ids.
func (c rows) Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	began := time.Now()
	what, gate := "due", q.Horizon > time.Hour
	if gate { // which asks for all rows that are not final, at the same instant as the sweep: its dice are its own
		what = "due in order"
	}
	asked, err := c.guarded(ctx, what, name)
	if err != nil {
		return nil, after, err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if after.ID() == "" && !gate && name == tableName { // a sweep begins with it
		c.i.sweepBegins(began, q.Threshold)
	}
	now, last := time.Now(), number(after.ID())
	var list []*row
	for _, r := range w.table {
		if r.Table != name || r.visible.After(now) || r.number <= last {
			continue
		}
		age := asked.Sub(r.created) // a row that was made while the statement waited counts as old
		switch {
		case r.status == outbox.Pending && r.due.IsZero() && (age >= max(q.Threshold, r.graceShown()) || age < 0),
			r.status == outbox.Pending && !r.due.IsZero() && r.due.Sub(asked) <= q.Horizon,
			r.status == outbox.Sending && (q.ExpiredClaims == 0 || asked.Sub(tokenTime(r.token)) >= q.ExpiredClaims || tokenTime(r.token).Sub(asked) > claimAhead):
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return a.number - b.number })
	limit := q.Limit
	if limit <= 0 {
		limit = 500
	}
	next := table.CursorBehind("", true)
	if len(list) >= limit {
		list = list[:limit]
		next = table.CursorBehind(list[limit-1].ID, false)
	}
	out := make([]outbox.Candidate, len(list))
	for n, r := range list {
		if out[n] = w.candidate(r, asked); gate {
			w.disturb(c.i, r)
			continue
		}
		r.of(c.i.life).swept = true
		w.disturb(c.i, r)
	}
	if gate {
		w.note(c.i.life, "read for the order", "", "", len(out))
		if next.Done() {
			if !c.i.knowsRows(name) {
				c.i.knew[name] = now
			}
			c.i.gateRead[name] = now
		}
		return out, next, nil
	}
	w.note(c.i.life, "sweep", "", q.Threshold.String(), len(out))
	return out, next, nil
}

// sweepBegins checks that a start and an anchor are followed by a sweep over rows of any age. Callers hold mu.
func (i *incarnation) sweepBegins(at time.Time, threshold time.Duration) {
	i.sweeps++
	switch {
	case threshold == 0 && !at.Before(i.gapAt):
		i.gapAt = time.Time{}
	case threshold == 0:
	case i.sweeps == 1:
		i.w.violation("start", "the first sweep leaves out rows younger than %v", threshold)
	case !i.gapAt.IsZero() && at.After(i.gapAt):
		i.w.violation("gap", "the sweep after an anchor leaves out rows younger than %v", threshold)
	}
}
