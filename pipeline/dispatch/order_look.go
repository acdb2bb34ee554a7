package dispatch

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// lookAtRows asks what became of the rows that keys wait for and that nobody has in hand. It reports whether there may be more to look at.
func (d *Dispatch) lookAtRows(ctx context.Context) (again bool, err error) {
	d.mu.Lock()
	heads := d.heads(time.Now())
	d.mu.Unlock()
	if len(heads) == 0 {
		return false, nil
	}
	asked, cancel := context.WithTimeout(ctx, orderAsking)
	defer cancel()
	list, err := d.rows.States(asked, heads)
	if err != nil {
		return false, err
	}
	states := make(map[outbox.Identity]*outbox.Candidate, len(list))
	for i := range list {
		states[list[i].Identity] = &list[i]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range heads {
		again = d.looked(id, states[id], time.Now()) || again
	}
	return again, nil
}

// heads are the first rows of keys that are to be looked at now. Callers hold mu.
func (d *Dispatch) heads(now time.Time) (ids []outbox.Identity) {
	o := d.gate
	if d.breaker.state != breakerClosed {
		return nil // nothing would go out
	}
	for range min(len(o.waiting), orderLanes) {
		if len(ids) == orderPage {
			break
		}
		if o.next++; o.next >= len(o.waiting) {
			o.next = 0
		}
		l := o.waiting[o.next]
		row := l.left[0]
		switch {
		case l.first != nil || d.topicSuspended(l.topic) || o.tables[l.table].unread:
			continue
		case row.entry != nil && d.tracker.Has(row.entry):
			continue
		case row.entry != nil: // something has just become of it
			row.entry, l.look, l.looks = nil, now, 0
		}
		if now.Before(l.look) {
			continue
		}
		l.look = now.Add(lookPauses.Delay(l.looks, 0.5))
		l.looks++
		ids = append(ids, row.id)
	}
	return ids
}

// looked takes notice of what the table says of the row that its key waits for. It reports whether the key goes on with the next one.
// Callers hold mu.
func (d *Dispatch) looked(id outbox.Identity, c *outbox.Candidate, now time.Time) (next bool) {
	row := d.gate.rows[id]
	if row == nil || row.entry != nil || row.lane.first != nil || row.lane.left[0] != row {
		return false // somebody was faster
	}
	l := row.lane
	known := row.seen
	if c != nil {
		d.gate.sighted(row)
	}
	switch {
	case c == nil && !known && now.Sub(row.since) < lateCommit:
	case c == nil, c.Status != outbox.Pending && c.Status != outbox.Sending, postponed(c):
		next = len(l.left) > 1
		d.gate.forget(row)
	case c.Waiting:
		wait := time.Duration(c.DueInMilli) * time.Millisecond
		l.look = now.Add(min(wait+time.Second, headLook))
		if row.shown { // else a look ahead finds it, with its place in the log
			d.sweeps.DueIn(id, wait)
		}
	case c.Status == outbox.Pending && !row.shown: // the sweep knows when the log will not show it any more
		d.sweeps.Trigger()
	case c.Status == outbox.Pending:
		for _, one := range l.left[:min(len(l.left), orderGroup)] { // those behind it may follow it at once
			if !one.shown {
				break
			}
			d.sweeps.DueIn(one.id, 0)
		}
	}
	return next
}
