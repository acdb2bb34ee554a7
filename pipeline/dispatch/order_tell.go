package dispatch

import "github.com/canal-outbox/canal-outbox/outbox"

// Behind tells which earlier row of its key a row waits for, and why that one is not final; false when it waits for none, or is not known.
func (d *Dispatch) Behind(id outbox.Identity) (first outbox.Identity, why string, waits bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.gate.rows[id]
	switch {
	case left == nil:
		return first, "", false
	case left.lane.left[0] != left:
		before := left.lane.left[0]
		return before.id, before.why, true
	case left.lane.first != nil && left.lane.first.Row() != id:
		return left.lane.first.Row(), "which is on its way to the broker", true
	}
	return first, "", false
}
