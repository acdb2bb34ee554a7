package sim

import (
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is for the seeds whose table keeps the order of its keys (tables[].ordering: key).

// drawOrdering is drawn apart, so that the rest of a seed is what it was.
func (p *plan) drawOrdering(seed uint64) {
	d := newDice(seed, "ordering")
	p.unordered = newDice(seed, "order of commits").chance(0.3)
	if p.ordered = d.chance(0.5); p.ordered {
		p.settings.Pipeline.Ordered = []string{tableName}
		p.settings.Pipeline.MaxWaiting = pick(d, 0, 0, 0, 2, 6)
	}
	for _, t := range p.txns {
		if t.rows > 100 {
			p.settings.Pipeline.MaxWaiting, p.settings.Fallback.Batch = 0, 0 // many rows in shares or in pairs take long
		}
	}
}

// knowsRows says that the process has read which rows of a table are not final since it began, or since its mark was moved. Callers hold mu.
func (i *incarnation) knowsRows(table string) bool { return i.gateRead[table].After(i.anchored) }

// orderKey is what the order of a row is kept by; "" when it is not.
func (w *world) orderKey(r *row) string {
	if r.key == "" || !slices.Contains(w.plan.settings.Pipeline.Ordered, r.Table) {
		return ""
	}
	return r.Table + "/" + r.topic + "/" + r.key
}

// promised reports whether a process must not send b before a: both by the order of their commits and by that of their ids a comes first,
// a is neither final nor to be sent later by its owner's will, and the process can know of it, because its stream has shown it, even if only
// as a row that the reader defers, or the table did when the process began, or skipped a part of the log, or before b was there; before it took
// b over. Rows that the log does not show at all are excluded, and deferred ones that become visible in another order than that of the log. A row b
// that the log does not show comes behind those rows only that the table showed when b was committed: the server orders nothing else. Callers hold mu.
func (w *world) promised(i *incarnation, a, b *row) bool {
	f := a.of(i.life)
	taken := b.of(i.life).taken
	left := !f.leftAt.IsZero() && f.leftAt.Before(taken)
	known := left || f.offered && f.offeredAt.Before(taken) || a.visible.Before(i.anchored) || a.visible.Before(b.committed) && a.committed.After(i.anchored)
	first := a.nth > 0 && !a.committed.After(b.committed) && a.number < b.number && (b.kind != hidden || !a.visible.After(b.committed))
	over := a.gone || a.records > 0 || a.status == outbox.Sent || a.status == outbox.Failed || a.status == outbox.Held
	// A closed table was read before it could be seen, or that of a deferred row.
	unseen := (w.plan.settings.Pipeline.MaxWaiting > 0 || w.plan.unordered && a.entry < 0) && a.visible.After(a.committed)
	return known && !unseen && first && !over && a.kind != delayed && a.grace == 0 && a.setBacks == 0 && !a.touched
}

// checkOrder looks at a row that is sent and of which there is no copy: the rows before it have one, or never will. Callers hold mu.
func (w *world) checkOrder(i *incarnation, b *row) {
	key := w.orderKey(b)
	if key == "" || b.records > 0 {
		return
	}
	for _, a := range w.lives {
		if a != b && w.orderKey(a) == key && w.promised(i, a, b) {
			w.violation("order", "%s is sent before %s, which has the same key and is %v", name(b.Identity), name(a.Identity), a.status)
		}
	}
}

// disturb notes that rows of a key may have been left to the sweep for another one of it. Callers hold mu.
func (w *world) disturb(i *incarnation, r *row) {
	if key := w.orderKey(r); key != "" {
		i.disturbed[key] = true
	}
}

// leftForOthers reports whether a row may be left to the sweep for another row of its key, or because it came before the table was read. Callers
// hold mu.
func (w *world) leftForOthers(i *incarnation, r *row) bool {
	key, f := w.orderKey(r), r.of(i.life)
	early := !i.knowsRows(r.Table) || i.early(r) || f.behind
	return i.disturbed[key] || key != "" && (early || !w.plan.quiet || i.deferrals > 0 || w.plan.settings.Pipeline.MaxWaiting+w.plan.settings.Pipeline.MaxInFlight > 0)
}

// early reports whether the stream offered the row before its table was read: it is left to the sweep.
func (i *incarnation) early(r *row) bool {
	f := r.of(i.life)
	return f.offered && !f.offeredAt.After(i.knew[r.Table])
}

// behindEarly reports whether a row is offered while an earlier one of its key waits for the sweep, because that one, or one that it waits for,
// came before the table was read. Callers hold mu.
func (w *world) behindEarly(i *incarnation, r *row) bool {
	key := w.orderKey(r)
	return key != "" && slices.ContainsFunc(w.lives, func(a *row) bool {
		if w.orderKey(a) != key || a.number >= r.number || a.gone || a.status != outbox.Pending && a.status != outbox.Sending {
			return false
		}
		f := a.of(i.life)
		return !f.handed && !f.acked && (i.early(a) || f.behind)
	})
}

// overtakenInZone reports whether a row that is looked up comes before another one of its key by its commit, and after it by its id. Rows that
// are looked up together go by their ids, so the row is left until the other one is final. Callers hold mu.
func (w *world) overtakenInZone(i *incarnation, r *row) bool {
	key := w.orderKey(r)
	return key != "" && slices.ContainsFunc(w.lives, func(a *row) bool {
		return a.number < r.number && a.committed.After(r.committed) && w.orderKey(a) == key && a.of(i.life).offered
	})
}

// drawHasty lets refused rows wait for longer than a run lasts, in some plans with ordered keys: their keys continue because the owner of the
// rows takes them away.
func (p *plan) drawHasty(d *dice) {
	held := slices.ContainsFunc(p.txns, func(t txnPlan) bool { return t.kind == logged }) // such a row waits in memory
	if p.hasty = p.ordered && !p.quiet && !held && d.chance(0.08); p.hasty {
		p.settings.Pipeline.Backoff = outbox.Backoff{Base: 10 * time.Minute, Max: 10 * time.Minute}
	}
}

// loseInterest makes the owner of a refused row delete it or mark it as sent a little later. Callers hold mu.
func (w *world) loseInterest(r *row) {
	if !w.plan.hasty {
		return
	}
	d := w.dice("hasty", uint64(r.number))
	marks := d.chance(0.5)
	time.AfterFunc(d.between(100*time.Millisecond, 3*time.Second), func() { w.takeAway(r, marks) })
}

// hastyWaits is how long a key may wait for refused rows that their owner takes away: the relay notices each within 15 s. Callers hold mu.
func (w *world) hastyWaits() (most time.Duration) {
	const noticed = 15 * time.Second
	waits := map[string]time.Duration{}
	for _, r := range w.lives {
		if key := w.orderKey(r); w.plan.hasty && key != "" && r.refused > 0 {
			waits[key] += noticed
			most = max(most, waits[key])
		}
	}
	return most
}

func (w *world) takeAway(r *row, marks bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch down, is := covering(w.plan.database, w.at()); {
	case is:
		time.AfterFunc(down.to-w.at()+time.Duration(r.number), func() { w.takeAway(r, marks) })
		return
	case r.gone || r.status != outbox.Pending || r.retries == 0:
		return
	case marks:
		r.status, r.foreignSent = outbox.Sent, true
		w.arrived(r)
	default:
		w.drop(r, "delete")
	}
	r.touched = true
	w.note(0, "owner", name(r.Identity), r.status.String(), 0)
	w.append(&entry{reason: "update"})
}
