// Package leasetest is the lease table in memory, for tests and the simulation.
//
// Guarantee: Table does what the statements of lease.Table do on MySQL and MariaDB: the same rows, the same counts, the same
// errors. The test of package lease runs random sequences of the statements on both servers and on this model. It has no clock,
// no lock and no goroutine: the time of the database is a parameter.
package leasetest

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/lease/protocol"
)

// Table is the lease table of one server.
type Table struct {
	Server  uint32
	Counted bool
	Birth   string
	Newest  uint64
	Rows    []Row // by term
}

// Row is one row.
type Row struct {
	protocol.Record
	Until time.Time // zero: released
}

// ErrDuplicate is the server's answer to a term that exists.
var ErrDuplicate = errors.New("the term exists already")

// Clone returns an independent copy.
func (t *Table) Clone() *Table {
	c := *t
	c.Rows = slices.Clone(t.Rows)
	return &c
}

// ends returns the text of an end.
func ends(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return until.UTC().Format("2006-01-02 15:04:05.000")
}

// Read returns the whole table.
func (t *Table) Read(now time.Time) protocol.View {
	v := protocol.View{Server: t.Server, Counted: t.Counted, Birth: t.Birth, Newest: t.Newest}
	for _, r := range t.Rows {
		one := r.Record
		one.Ends, one.Ended = ends(r.Until), !r.Until.After(now)
		v.Rows = append(v.Rows, one)
		if !t.Counted {
			v.Newest = max(v.Newest, r.Term)
		}
	}
	return v
}

// Begin creates the counter unless there is one.
func (t *Table) Begin(birth string, newest uint64) {
	if !t.Counted {
		t.Counted, t.Birth, t.Newest = true, birth, newest
	}
}

// Take is an acquisition: entirely or not at all.
func (t *Table) Take(x protocol.Take, ttl time.Duration, now time.Time) error {
	if !t.Counted || t.Server != x.Server || t.Birth != x.Birth || t.Newest != x.Newest {
		return protocol.ErrTaken
	}
	after := slices.Clone(t.Rows)
	for _, r := range x.From {
		i := slices.IndexFunc(after, func(o Row) bool { return o.Term == r.Term && ends(o.Until) == r.Ends })
		if i < 0 {
			return protocol.ErrTaken
		}
		rest := slices.DeleteFunc(slices.Clone(r.Tables), func(name string) bool { return slices.Contains(x.Next.Tables, name) })
		if len(rest) == 0 {
			after = slices.Delete(after, i, i+1)
		} else {
			after[i].Tables = rest
		}
	}
	if slices.ContainsFunc(after, func(o Row) bool { return o.Term == x.Next.Term }) {
		return ErrDuplicate
	}
	after = append(after, Row{Record: x.Next, Until: now.Add(ttl)})
	slices.SortFunc(after, func(a, b Row) int { return cmp.Compare(a.Term, b.Term) })
	t.Rows, t.Newest = after, x.Next.Term
	return nil
}

// Renew extends the row of an acquisition to ttl from now; false when none matches.
func (t *Table) Renew(a protocol.Acquisition, at protocol.Resume, ttl time.Duration, now time.Time) bool {
	r := t.row(a)
	if r == nil {
		return false
	}
	r.Until, r.Resume.Pause = now.Add(ttl), at.Pause
	r.resume(at)
	return true
}

// Release ends the row of an acquisition; false when none matches.
func (t *Table) Release(a protocol.Acquisition, at protocol.Resume) bool {
	a.Server = t.Server // a release works on any server
	r := t.row(a)
	if r == nil {
		return false
	}
	r.Until = time.Time{}
	r.resume(at)
	return true
}

func (t *Table) row(a protocol.Acquisition) *Row {
	i := slices.IndexFunc(t.Rows, func(r Row) bool {
		return t.Server == a.Server && r.Term == a.Term && r.Process == a.Process && slices.Equal(r.Tables, a.Tables)
	})
	if i < 0 {
		return nil
	}
	return &t.Rows[i]
}

// resume sets the position, when it is known.
func (r *Row) resume(at protocol.Resume) {
	if !at.At.IsZero() {
		r.Resume.Source, r.Resume.At = at.Source, at.At
	}
}
