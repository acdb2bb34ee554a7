package protocol

import (
	"maps"
	"slices"
	"time"
)

// Clone is a copy that shares nothing that changes.
func (p *Part) Clone() *Part {
	c := *p
	c.watched = maps.Clone(p.watched)
	return &c
}

// Settle ends its waits for rows that may be lost.
func (p *Part) Settle() { p.since = time.Time{} }

// Longest returns the longest lease time that it has read.
func (p *Part) Longest() time.Duration { return p.longest }

// Newest returns the newest term that it has read.
func (p *Part) Newest() uint64 { return p.newest }

// Dump writes what distinguishes it from another Part. Times are ages, at most as old as a decision can distinguish.
func (p *Part) Dump(now time.Time, number func(uint64), text func(string), ends func(string)) {
	age := func(since time.Time, limit time.Duration) { number(uint64(min(now.Sub(since), limit))) }
	number(p.highest)
	number(uint64(p.longest))
	if !p.looked {
		text("new")
		return
	}
	number(uint64(p.server))
	text(p.birth)
	number(p.newest)
	for _, name := range p.covered {
		text(name)
	}
	age(p.since, p.longest)
	for _, term := range slices.Sorted(maps.Keys(p.watched)) {
		number(term)
		ends(p.watched[term].ends)
		age(p.watched[term].since, 2*p.longest)
	}
}
