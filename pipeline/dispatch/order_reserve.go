package dispatch

import (
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// Reserve takes ownership for the sweep. It returns the rows without an owner that may go, each with its entry; and those that are to
// be left alone: of suspended topics, and those whose key waits for an earlier row. Rows of a table that is being read are in neither.
func (d *Dispatch) Reserve(rows []outbox.Candidate) (free, alone []outbox.Candidate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows, alone = d.withoutSuspended(rows)
	if len(d.gate.tables) == 0 {
		return d.tracker.Reserve(rows), alone
	}
	rows = d.withoutUnread(rows)
	free, waiting := d.inOrder(d.tracker.Reserve(rows))
	d.tracker.Release(waiting)
	return free, append(alone, waiting...)
}

func (d *Dispatch) withoutUnread(rows []outbox.Candidate) []outbox.Candidate {
	rest := make([]outbox.Candidate, 0, len(rows))
	for _, c := range rows {
		if t := d.gate.tables[c.Table]; t == nil || !t.unread || !hasTurn(&c) {
			rest = append(rest, c)
		}
	}
	return rest
}

// hasTurn reports whether later rows of its key wait for a row: not without a key, and not for one that is final, whatever becomes of it.
func hasTurn(c *outbox.Candidate) bool {
	return c.Key != "" && c.Status != outbox.Sent && c.Status != outbox.Failed
}

// inOrder remembers rows that the sweep has reserved, before it reads them, because from now on the log's rows of their keys come behind
// them. It returns those before which there are none but such rows, and the others, which are not to be published now. Callers hold mu.
func (d *Dispatch) inOrder(reserved []outbox.Candidate) (free, waiting []outbox.Candidate) {
	o := d.gate
	o.round++
	blind := o.blind.File != "" && d.tracker.Offered().Compare(o.blind) < 0
	for i := range reserved {
		c := &reserved[i]
		if o.tables[c.Table] == nil || !hasTurn(c) {
			continue
		}
		k := rowKey{c.Table, c.Topic, c.Key}
		if t := o.tables[c.Table]; (blind || t.missing) && !o.knows(c.Identity, t) {
			if row := o.leave(k, c.Identity, nil, "found by the sweep", false); row != nil {
				o.sighted(row)
				row.shown = false
			}
			t.again = true
			o.kick()
			continue
		}
		if row := o.leave(k, c.Identity, tracker.Of(c.Entry), "found by the sweep", false); row != nil {
			o.sighted(row)
			row.round = o.round
		}
	}
	for _, c := range reserved {
		row := o.rows[c.Identity]
		switch {
		case o.failedWaits(&c):
			waiting = append(waiting, c)
		case o.tables[c.Table] == nil || !hasTurn(&c):
			free = append(free, c)
		case row != nil && o.goesWith(row):
			free = append(free, c)
		default:
			if row != nil {
				row.entry = nil
			}
			waiting = append(waiting, c)
		}
	}
	return free, waiting
}

// failedWaits reports whether a row stays FAILED for now: rows of its key wait, or may wait. Set back to PENDING it comes before them. Where a key
// has several such rows, there would always be one that the others wait for.
func (o *order) failedWaits(c *outbox.Candidate) bool {
	t := o.tables[c.Table]
	if t == nil || c.Status != outbox.Failed || c.Key == "" {
		return false
	}
	l := o.keys[rowKey{c.Table, c.Topic, c.Key}]
	return t.closed || l != nil && len(l.left) > 0
}

// knows reports whether the rows before one are known, too: the log has shown it, or the table was read after it was found.
func (o *order) knows(id outbox.Identity, t *orderedTable) bool {
	row := o.rows[id]
	return row != nil && (row.shown || row.seen && row.read < t.done)
}

// goesWith reports whether a row and all before it that are left were reserved in this round.
func (o *order) goesWith(row *leftRow) bool {
	l := row.lane
	if l.first != nil && l.first.Sends.Scout > 0 {
		return false
	}
	if l.round != o.round {
		l.round = o.round
		for _, one := range l.left {
			if one.round != o.round {
				break
			}
			one.goes = o.round
		}
	}
	return row.goes == o.round
}
