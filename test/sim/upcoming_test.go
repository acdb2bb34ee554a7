package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Upcoming implements fallback.Rows.
func (c rows) Upcoming(ctx context.Context, name string, from, to time.Duration, limit int) ([]outbox.Candidate, error) {
	now, err := c.guarded(ctx, "upcoming", name)
	if err != nil {
		return nil, err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*row
	for _, r := range w.table {
		if left := r.due.Sub(now); r.Table == name && !r.visible.After(time.Now()) && r.status == outbox.Pending && !r.due.IsZero() && left > from && left <= to {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return cmp.Or(a.due.Compare(b.due), a.number-b.number) })
	var out []outbox.Candidate
	for _, r := range list[:min(limit, len(list))] {
		w.disturb(c.i, r)
		r.of(c.i.life).swept = true // a timer may own it when the log shows it, as a sweep may
		out = append(out, w.candidate(r, now))
	}
	w.note(c.i.life, "look ahead", "", "", len(out))
	return out, nil
}
