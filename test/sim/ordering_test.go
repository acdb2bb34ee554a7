package sim

import (
	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is for the seeds whose table keeps the order of its keys (tables[].ordering: key).

// drawOrdering is drawn apart, so that the rest of a seed is what it was.
func (p *plan) drawOrdering(seed uint64) {
	d := newDice(seed, "ordering")
	if p.ordered = d.chance(0.5); p.ordered {
		p.settings.Pipeline.Ordered = []string{tableName}
		p.settings.Pipeline.MaxWaiting = pick(d, 0, 0, 0, 2, 6)
	}
	for _, t := range p.txns {
		if t.rows > 100 {
			p.settings.Pipeline.MaxWaiting = 0 // so many rows in turns take long
		}
	}
}

// knowsRows says that the process has read which rows are not final since it began, or since its mark was moved. Callers hold mu.
func (i *incarnation) knowsRows() bool { return i.read.After(i.anchored) }

// orderKey is what the order of a row is kept by; "" when it is not.
func (w *world) orderKey(r *row) string {
	if !w.plan.ordered || r.key == "" || r.logOnly {
		return ""
	}
	return r.topic + "/" + r.key
}

// promised reports whether a process must not send b before a: both by the order of their commits and by that of their ids a comes first,
// a is neither final nor to be sent later by somebody's will, and the process can know of it, because its stream has shown it or the table
// did when the process began, or passed over a part of the log, or before b was there; before it took b over. Callers hold mu.
func (w *world) promised(i *incarnation, a, b *row) bool {
	f := a.of(i.life)
	known := f.offered && f.offeredAt.Before(b.of(i.life).taken) || a.visible.Before(i.anchored) || a.visible.Before(b.committed) && a.committed.After(i.anchored)
	first := a.nth > 0 && a.committed.Before(b.committed) && a.number < b.number
	over := a.gone || a.records > 0 || a.status == outbox.Sent || a.status == outbox.Failed || a.status == outbox.Held
	hidden := w.plan.settings.Pipeline.MaxWaiting > 0 && a.visible.After(a.committed) // a closed table was read before it could be seen
	return known && !hidden && first && !over && a.kind != delayed && a.grace == 0 && a.setBacks == 0 && !a.touched
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
