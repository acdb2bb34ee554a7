package sim

import (
	"context"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/retention"
)

// drawRetention lets old rows leave in some runs. It has dice of its own.
func drawRetention(p *plan, seed uint64) retention.Config {
	d := newDice(seed, "retention")
	cfg := retention.Config{Tables: p.tables(), Interval: d.between(200*time.Millisecond, 2*time.Second), Batch: pick(d, 0, 1, 3)}
	if d.chance(0.4) {
		all := []table.Expiry{{Status: outbox.Sent, Age: d.between(100*time.Millisecond, 3*time.Second), Into: pick(d, "", table.ArchiveSuffix)}}
		if d.chance(0.5) {
			all = append(all, table.Expiry{Status: outbox.Failed, Age: d.between(100*time.Millisecond, 3*time.Second), Into: table.FailedSuffix})
		}
		cfg.Expiries = map[string][]table.Expiry{}
		for _, name := range cfg.Tables {
			cfg.Expiries[name] = all
		}
	}
	return cfg
}

// expires is the condition of the statements: a row that the consumers have finished leaves with the SENT ones.
func (r *row) expires(e table.Expiry) bool {
	final := r.status == e.Status || e.Status == outbox.Sent && r.status == outbox.Held && r.consumed
	return !r.gone && final && time.Since(r.finalSince()) >= e.Age && !r.visible.After(time.Now())
}

// pageOfRows is small, so that a walk has pages.
const pageOfRows = 7

// Expired implements retention.Rows: a page in the order of the ids.
func (c rows) Expired(ctx context.Context, name, after string, of []table.Expiry) (table.ExpiredPage, error) {
	page := table.ExpiredPage{IDs: make([][]string, len(of)), Next: after}
	if _, err := c.guarded(ctx, "expired", name); err != nil {
		return page, err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*row
	last := number(after)
	for _, r := range w.table {
		if r.Table == name && r.number > last {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return a.number - b.number })
	page.Done = len(list) < pageOfRows
	list = list[:min(len(list), pageOfRows)]
	for _, r := range list {
		for i, e := range of {
			if r.expires(e) {
				page.IDs[i] = append(page.IDs[i], r.ID)
			}
		}
		page.Next = r.ID
	}
	page.Looked = len(list)
	return page, nil
}

// Expire implements retention.Rows. What leaves must be where it belongs: published, or FAILED.
func (c rows) Expire(ctx context.Context, from string, e table.Expiry, ids []string) (left table.Left, err error) {
	w := c.i.w
	ids = slices.Clone(ids)
	err = c.write(ctx, "expire", from, func() {
		for _, id := range ids {
			r := w.table[primary{from, id}]
			if r == nil || !r.expires(e) || r.locked.After(time.Now()) {
				left.Skipped++
				continue
			}
			if r.status == outbox.Sent && r.records == 0 && !r.foreignSent {
				w.violation("P1", "%s leaves the table, and the broker has no copy", name(r.Identity))
			}
			w.drop(r, "retention")
			left.Rows++
		}
		if left.Rows > 0 && w.plan.ownLog {
			w.append(&entry{reason: "retention"})
		}
	})
	return left, err
}

// TimeOfDay implements retention.Rows; there is no window here.
func (c rows) TimeOfDay(context.Context, string) (time.Duration, error) { return 0, nil }

// History implements retention.Rows.
func (c rows) History(context.Context) (int64, bool, error) { return 0, true, nil }
