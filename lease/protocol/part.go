package protocol

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Config describes this process.
type Config struct {
	Holder  string        // the state directory: the same over restarts, different for every other one
	Process string        // see Process
	Host    string        // for people
	Time    time.Duration // duration of a renewal
}

// Part decides for a process that does not hold the lease, from what it reads. Create it with NewPart.
type Part struct {
	cfg     Config
	looked  bool
	server  uint32
	birth   string
	newest  uint64           // the counter at the last look
	highest uint64           // the highest that was read or tried here: own terms are above it
	longest time.Duration    // the longest lease time in any row that was read here, and its own
	covered []string         // tables of the last look that were in a row
	since   time.Time        // since then no row that was read here was lost
	watched map[uint64]watch // rows of others, by term
}

// watch is a row that has not changed.
type watch struct {
	ends  string
	since time.Time
}

// Decision is what to do after a look. One of Begin, Take and Why is set.
type Decision struct {
	Begin  bool    // there is no counter: create it, from Newest, and look again
	Newest uint64  // with Begin
	Take   *Take   // the lease may be taken
	Why    string  // why not
	Holder *Record // with Why: the row of the relay that may publish; nil when none is known
}

// NewPart returns a Part that has read nothing.
func NewPart(cfg Config) *Part {
	return &Part{cfg: cfg, longest: cfg.Time, watched: map[uint64]watch{}}
}

// Look decides whether the lease of the tables may be taken. v was read between asked and now.
func (p *Part) Look(v View, tables []string, asked, now time.Time) Decision {
	from, covered := inTheWay(v.Rows, tables)
	first := !p.looked
	if p.lost(v, tables, covered) {
		p.since, p.watched = now, map[uint64]watch{}
	}
	for _, r := range v.Rows {
		p.longest, p.highest = max(p.longest, LeaseTime(r.Process)), max(p.highest, r.Term)
	}
	p.highest = max(p.highest, v.Newest)
	p.looked, p.server, p.birth, p.newest, p.covered = true, v.Server, v.Birth, v.Newest, covered
	maps.DeleteFunc(p.watched, func(term uint64, _ watch) bool {
		return !slices.ContainsFunc(from, func(r Record) bool { return r.Term == term })
	})
	if !v.Counted {
		return Decision{Begin: true, Newest: p.highest}
	}
	settled := asked.Sub(p.since) >= p.longest
	proven := settled || !slices.ContainsFunc(from, func(r Record) bool {
		// A row that was written on this server shows that the server had taken over from any other one by then.
		return p.over(r, first) && r.Resume.Source.ServerID != v.Server
	})
	d := Decision{}
	for i, r := range from {
		if !p.over(r, first) && !p.watchedLong(r, asked, now) && (d.Holder == nil || d.Holder.Ended) {
			d.Holder = &from[i]
		}
	}
	switch {
	case d.Holder != nil:
		d.Why = "another relay is active"
	case !proven:
		d.Why = fmt.Sprintf("this server is new to the lease and may lack its newest holder: waiting up to %v, for which that one may still publish", p.longest)
	case !settled && len(covered) < len(tables):
		d.Why = fmt.Sprintf("a table is new to the lease, or its row was lost: waiting up to %v, for which a lost holder may still publish", p.longest)
	default:
		p.highest++
		next := Record{Term: p.highest, Holder: p.cfg.Holder, Process: p.cfg.Process, Host: p.cfg.Host, Tables: tables}
		d.Take = &Take{Server: v.Server, Birth: v.Birth, Newest: v.Newest, Next: next, From: from}
	}
	return d
}

// lost reports whether earlier acquisitions may be missing: at the first look, on another server, with another counter or one
// that decreased, and when a row is gone that no other one replaces. Each acquisition moves the counter, and no table ever leaves
// the rows.
func (p *Part) lost(v View, tables, covered []string) bool {
	gone := slices.ContainsFunc(p.covered, func(name string) bool {
		return slices.Contains(tables, name) && !slices.Contains(covered, name)
	})
	return !p.looked || !v.Counted || v.Server != p.server || v.Birth != p.birth || v.Newest < p.newest || gone
}

// over reports whether the holder of a row has ended: it released the lease, or it is an earlier process of this directory. A
// state directory is locked: a process that finds its row at its first look can conclude that the holder is dead, in the same start of
// the machine.
func (p *Part) over(r Record, first bool) bool {
	return r.Ends == "" || r.Process == p.cfg.Process || first && r.Holder == p.cfg.Holder && Boot(r.Process) == Boot(p.cfg.Process)
}

// watchedLong reports whether a row has not changed for as long as its holder may publish without the database: its lease time if
// it has also ended by the database's clock, else twice that. The watch decides: clocks of databases step, and another server has
// another clock.
func (p *Part) watchedLong(r Record, asked, now time.Time) bool {
	w, known := p.watched[r.Term]
	if !known || w.ends != r.Ends {
		p.watched[r.Term] = watch{ends: r.Ends, since: now}
		return false
	}
	theirs := LeaseTime(r.Process)
	if theirs == 0 {
		theirs = p.cfg.Time
	}
	unchanged := asked.Sub(w.since)
	return r.Ended && unchanged >= theirs || unchanged >= 2*theirs
}

// inTheWay returns the rows that share tables with a list, and the tables of the list that they have.
func inTheWay(rows []Record, tables []string) (from []Record, covered []string) {
	for _, r := range rows {
		shared := slices.DeleteFunc(slices.Clone(tables), func(name string) bool { return !slices.Contains(r.Tables, name) })
		if len(shared) > 0 {
			from, covered = append(from, r), append(covered, shared...)
		}
	}
	return from, covered
}
