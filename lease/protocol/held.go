package protocol

import (
	"slices"
	"time"
)

// Margin is the part of the lease time by which a holder stops early.
const Margin = 10

// Held is a lease that this process holds.
type Held struct {
	Acquisition
	Time time.Duration // the lease time
}

// Until returns the end of a lease whose acquisition or renewal was confirmed. asked is before the statement was sent.
func (h *Held) Until(asked time.Time) time.Time { return asked.Add(h.Time - h.Time/Margin) }

// Unmatched decides after a renewal that matched no row. v was read afterwards. It returns true when the row exists nevertheless,
// and the renewal must be sent again: the database has failed over. Only a valid lease moves to another server. After its end
// another relay may have taken it, and the new server may lack that.
func (h *Held) Unmatched(v View, valid bool) (again bool) {
	if v.Server != h.Server && !valid || !slices.ContainsFunc(v.Rows, h.is) {
		return false
	}
	h.Server = v.Server
	return true
}

// is reports whether a row is the one of this acquisition, with all of its tables.
func (h *Held) is(r Record) bool {
	return r.Term == h.Term && r.Process == h.Process && slices.Equal(r.Tables, h.Tables)
}
