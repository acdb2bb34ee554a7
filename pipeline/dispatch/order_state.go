package dispatch

import (
	"slices"
	"time"
)

// WaitingKey is a key that waits for a row of its own (ordering: key).
type WaitingKey struct {
	Table, Topic, Key string
	MessageID         string // of the row that it waits for
	Reason            string // why that was not sent
	Since             time.Time
	Rows              int // that are remembered, with that one
}

// WaitingKeys returns the keys that wait longest, at most n.
func (d *Dispatch) WaitingKeys(n int) (list []WaitingKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var first []*lane
	for _, l := range d.gate.waiting {
		at := len(first)
		for at > 0 && l.left[0].since.Before(first[at-1].left[0].since) {
			at--
		}
		if at < n {
			first = slices.Insert(first[:min(len(first), n-1)], at, l)
		}
	}
	for _, l := range first {
		row := l.left[0]
		list = append(list, WaitingKey{
			Table: l.table, Topic: l.topic, Key: l.key, MessageID: row.id.MessageID, Reason: row.why, Since: row.since, Rows: len(l.left),
		})
	}
	return list
}
