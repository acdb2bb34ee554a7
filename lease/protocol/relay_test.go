package protocol_test

import (
	"fmt"
	"iter"
	"time"

	"github.com/canal-outbox/canal-outbox/lease/protocol"
)

// eachOf is the next step of one relay. A statement that writes runs when it is sent, or later, when its sender no longer waits,
// or never; its answer comes at any later time, or never. A read is one step: its answer is old when the relay acts on it.
func (w *world) eachOf(i int, try func(string, func(*world, *relay))) {
	r := &w.relays[i]
	if r.stray != nil {
		try("a stray statement arrives: "+r.stray.kind, func(n *world, r *relay) {
			n.done(*r.stray)
			r.stray = nil
		})
		try("a stray statement is lost", func(_ *world, r *relay) { r.stray = nil })
	}
	switch {
	case !r.up:
		for k, tables := range r.plan.lists {
			if w.starts > 0 && w.mayStart(r) {
				try(fmt.Sprint("starts with list ", k), func(n *world, r *relay) {
					n.starts--
					r.start(tables)
				})
			}
		}
		return
	case w.starts > 0: // a kill without a later start differs in nothing from a relay without a step
		try("is killed", func(_ *world, r *relay) {
			*r = relay{plan: r.plan, number: r.number, starts: r.starts, now: r.now, stray: r.stray}
		})
	}
	switch {
	case r.answer != nil:
		try("has the answer: "+r.answer.kind, (*world).answered)
		try("has no answer: "+r.answer.kind, func(_ *world, r *relay) { r.answer = nil })
	case r.take != nil:
		take := *r.take
		take.Next.Resume.Source.ServerID = take.Server
		own := protocol.Acquisition{Term: take.Next.Term, Process: take.Next.Process, Tables: take.Next.Tables, Server: take.Server}
		w.send(r, statement{kind: "take", take: take}, answer{kind: "take", own: own}, try)
	case r.held == nil || r.again:
		try("reads", func(n *world, r *relay) { n.reads(r) })
	default:
		if r.until.Before(r.held.Until(r.now)) {
			w.send(r, statement{kind: "renew", own: r.held.Acquisition}, answer{kind: "renew"}, try)
		}
		own := r.held.Acquisition
		try("releases", func(n *world, r *relay) {
			r.held = nil
			n.done(statement{kind: "release", own: own})
		})
		if r.stray == nil && w.strays > 0 {
			try("releases, and that is held up", func(n *world, r *relay) {
				n.strays--
				r.held, r.stray = nil, &statement{kind: "release", own: own}
			})
		}
	}
}

// send is a statement that runs at once, or later without a waiting sender.
func (w *world) send(r *relay, s statement, a answer, try func(string, func(*world, *relay))) {
	try("sends: "+s.kind, func(n *world, r *relay) {
		r.take = nil
		a := a
		a.asked, a.ok = r.now, n.done(s)
		r.answer = &a
	})
	if r.stray == nil && w.strays > 0 {
		try("sends, and that is held up: "+s.kind, func(n *world, r *relay) {
			n.strays--
			r.take, r.stray = nil, &s
		})
	}
}

// answered is a relay's reaction to an answer.
func (w *world) answered(r *relay) {
	a := *r.answer
	r.answer = nil
	switch a.kind {
	case "take":
		if a.ok {
			r.held = &protocol.Held{Acquisition: a.own, Time: time.Duration(r.plan.ttl) * time.Second}
			r.until = r.held.Until(a.asked)
		}
	case "renew":
		if r.again = !a.ok; a.ok {
			r.until = r.held.Until(a.asked)
		}
	}
}

// reads is a read of the table and its consequence.
func (w *world) reads(r *relay) {
	v := w.view()
	if r.again {
		held := *r.held
		r.held, r.again = &held, false
		if !held.Unmatched(v, r.valid()) {
			r.held = nil
		}
		return
	}
	r.part = r.part.Clone()
	d := r.part.Look(v, r.tables, r.now, r.now)
	if w.mutant.noWait && !d.Begin && d.Take == nil {
		r.part.Settle()
		d = r.part.Look(v, r.tables, r.now, r.now)
	}
	switch {
	case d.Begin:
		w.births++
		w.done(statement{kind: "begin", birth: fmt.Sprint(w.births), take: protocol.Take{Newest: d.Newest}})
	case d.Take != nil && d.Take.Next.Term <= w.terms:
		r.take = d.Take
	}
}

func (w *world) dumpRow(r protocol.Record, number func(uint64), text, ends func(string)) {
	number(r.Term)
	text(r.Process)
	for _, name := range r.Tables {
		text(name)
	}
	ends(r.Ends)
	number(uint64(r.Resume.Source.ServerID))
}

func (r *relay) dump(number func(uint64), text, ends func(string)) {
	age := func(t time.Time) { number(uint64(min(r.now.Sub(t), 20*time.Second))) }
	acquisition := func(a protocol.Acquisition) {
		number(a.Term)
		number(uint64(a.Server))
		text(a.Process)
		for _, name := range a.Tables {
			text(name)
		}
	}
	take := func(x *protocol.Take) {
		number(x.Newest)
		number(uint64(x.Server))
		text(x.Birth)
		number(x.Next.Term)
		for _, row := range x.From {
			(*world)(nil).dumpRow(row, number, text, ends)
		}
	}
	number(uint64(r.starts))
	if r.stray != nil {
		text(r.stray.kind)
		acquisition(r.stray.own)
		take(&r.stray.take)
	}
	if !r.up {
		text("down")
		return
	}
	for _, name := range r.tables {
		text(name)
	}
	if r.held != nil {
		acquisition(r.held.Acquisition)
		number(uint64(max(0, r.until.Sub(r.now))))
		text(fmt.Sprint(r.again))
	}
	r.part.Dump(r.now, number, text, ends)
	if r.take != nil {
		text("take")
		take(r.take)
	}
	if a := r.answer; a != nil {
		text(a.kind)
		age(a.asked)
		acquisition(a.own)
		text(fmt.Sprint(a.ok))
	}
}

// worlds are the explorations. Each has one kind of fault, in every order with starts, stops and delayed statements.
func worlds() iter.Seq2[string, bounds] {
	ab, b, bc := []string{"a", "b"}, []string{"b"}, []string{"b", "c"}
	long := relayPlan{lists: [][]string{ab, b}, ttl: 2, slow: true}
	short, other := relayPlan{lists: [][]string{b}, ttl: 1}, relayPlan{lists: [][]string{bc}, ttl: 1}
	two, three := []relayPlan{long, short}, []relayPlan{long, short, other}
	return func(yield func(string, bounds) bool) {
		_ = yield("two relays", bounds{relays: two, terms: 4, starts: 2, strays: 1, used: true}) &&
			yield("three relays", bounds{relays: three, terms: 4, used: true}) &&
			yield("rows are lost", bounds{relays: two, terms: 4, losses: 1, strays: 1, starts: 1, used: true}) &&
			yield("a server lacks the newest writes", bounds{relays: two, terms: 4, failovers: 1, starts: 1, used: true}) &&
			yield("a new table", bounds{relays: two, terms: 3, losses: 1, starts: 1})
	}
}

// mutants are the explorations, each without one rule.
func mutants() iter.Seq2[string, bounds] {
	all := map[string]bounds{}
	for name, b := range worlds() {
		all[name] = b
	}
	with := func(name string, m mutant) bounds {
		b := all[name]
		b.mutant = m
		return b
	}
	return func(yield func(string, bounds) bool) {
		_ = yield("a_renewal_that_does_not_name_the_tables", with("three relays", mutant{anyTables: true})) &&
			yield("a_renewal_that_does_not_name_the_process", with("rows are lost", mutant{anyProcess: true, noWait: true})) &&
			yield("a_lost_table_is_not_waited_for", with("rows are lost", mutant{noWait: true})) &&
			yield("another_server_is_not_noticed", with("a server lacks the newest writes", mutant{anyServer: true})) &&
			yield("a_row_without_the_lease_time", with("two relays", mutant{noTime: true}))
	}
}
