package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/lease/leasetest"
	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// bounds are the relays of an exploration, and the maximum number of each event.
type bounds struct {
	relays    []relayPlan
	terms     uint64 // acquisitions
	losses    int    // of all rows, or of one
	failovers int    // to a server that lacks the newest writes
	starts    int    // beyond the first one of each relay
	strays    int    // statements that are delayed
	used      bool   // the table was in use
	mutant    mutant
}

type relayPlan struct {
	lists [][]string // of tables: each start uses one of them
	ttl   int        // lease time in seconds
	slow  bool       // its clock runs slower, by a tenth
}

// mutant removes a rule.
type mutant struct {
	anyTables  bool // a renewal does not name the tables
	anyProcess bool // nor the process
	anyServer  bool // nor the server
	noTime     bool // a row does not have the lease time
	noWait     bool // no wait when rows are lost, or the table is new
}

// The start of the own time of every relay, and a time of the database at which every lease has ended: a decision may use that
// time to be faster, so this is the worst case.
var (
	origin = time.Unix(0, 0)
	ever   = time.Unix(1<<40, 0)
)

// world is a state: the table, the server that would take over, and the relays.
type world struct {
	*bounds
	table, replica                    leasetest.Table
	writes                            int // so far: each end has a unique text
	losses, failovers, starts, strays int // left
	births                            int
	relays                            []relay
}

// relay is a state directory with, at most times, a process.
type relay struct {
	plan   *relayPlan
	number int
	up     bool
	starts int
	tables []string
	now    time.Time
	part   *protocol.Part
	held   *protocol.Held
	until  time.Time
	answer *answer        // not received yet
	take   *protocol.Take // decided on, not sent yet
	again  bool           // a renewal matched no row: read why
	stray  *statement     // a statement that runs later without a waiting sender
}

// statement is one that writes.
type statement struct {
	kind  string
	birth string
	take  protocol.Take
	own   protocol.Acquisition
}

// answer is the result of a statement.
type answer struct {
	kind  string
	asked time.Time
	own   protocol.Acquisition // of a take
	ok    bool
}

func newWorld(b bounds) *world {
	w := &world{bounds: &b, table: leasetest.Table{Server: 1}, losses: b.losses, failovers: b.failovers, starts: b.starts, strays: b.strays}
	if b.used {
		row := protocol.Record{Term: 1, Holder: "gone", Process: "boot/gone/1000ms", Tables: []string{"a", "b", "c"}}
		row.Resume.Source.ServerID = 1
		w.table = leasetest.Table{Server: 1, Counted: true, Birth: "0", Newest: 1, Rows: []leasetest.Row{{Record: row}}}
	}
	w.replica = *w.table.Clone()
	for i := range b.relays {
		w.relays = append(w.relays, relay{plan: &b.relays[i], number: i, now: origin})
		w.relays[i].start(b.relays[i].lists[0])
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.table, c.replica, c.relays = *w.table.Clone(), *w.replica.Clone(), slices.Clone(w.relays)
	return &c
}

func (r *relay) start(tables []string) {
	ttl := r.time()
	*r = relay{plan: r.plan, number: r.number, up: true, starts: r.starts + 1, tables: tables, now: r.now, stray: r.stray}
	r.part = protocol.NewPart(protocol.Config{
		Holder: fmt.Sprint("dir", r.number), Process: protocol.Process("boot", fmt.Sprint(r.number, ".", r.starts), ttl), Time: ttl,
	})
}

// valid reports whether it may publish.
func (r *relay) valid() bool { return r.up && r.held != nil && r.until.After(r.now) }

// mayHold reports whether it may publish, or may without another write.
func (r *relay) mayHold() bool {
	return r.valid() || r.up && r.answer != nil && r.answer.ok
}

func (r *relay) time() time.Duration { return time.Duration(r.plan.ttl) * time.Second }

// wrote reports whether a row is its newest acquisition.
func (r *relay) wrote(row leasetest.Row) bool {
	own := protocol.Acquisition{}
	if r.held != nil {
		own = r.held.Acquisition
	} else if r.answer != nil {
		own = r.answer.own
	}
	return row.Term == own.Term && row.Process == own.Process
}

// fault returns a violation of the guarantee; "" if there is none.
func (w *world) fault() string {
	for i := range w.relays {
		for j := range i {
			a, b := &w.relays[j], &w.relays[i]
			if a.valid() && b.valid() && slices.ContainsFunc(a.held.Tables, func(t string) bool { return slices.Contains(b.held.Tables, t) }) {
				return fmt.Sprintf("relays %d and %d may both publish of %v and %v", j, i, a.held.Tables, b.held.Tables)
			}
		}
	}
	return ""
}

// each calls found with every possible next state, until it returns false.
func (w *world) each(found func(string, *world) bool) {
	open := true
	try := func(step string, change func(*world)) {
		if open {
			next := w.clone()
			change(next)
			open = found(step, next)
		}
	}
	try("a second passes", (*world).tick)
	w.eachEvent(try)
	for i := range w.relays {
		w.eachOf(i, func(step string, change func(*world, *relay)) {
			try(fmt.Sprint("relay ", i, ": ", step), func(next *world) { change(next, &next.relays[i]) })
		})
	}
}

func (w *world) tick() {
	for i := range w.relays {
		r := &w.relays[i]
		if r.now = r.now.Add(time.Second); r.plan.slow {
			r.now = r.now.Add(-time.Second / 10)
		}
	}
}

// eachEvent has the events of the table.
func (w *world) eachEvent(try func(string, func(*world))) {
	if w.losses > 0 && w.seen(nil) {
		try("all rows are lost", func(n *world) {
			n.losses--
			n.table = leasetest.Table{Server: n.table.Server}
		})
	}
	for k := range w.table.Rows {
		if w.losses > 0 && w.seen(&w.table.Rows[k]) {
			try(fmt.Sprint("a row is lost: ", w.table.Rows[k].Term), func(n *world) {
				n.losses--
				n.table.Rows = slices.Delete(n.table.Rows, k, k+1)
			})
		}
	}
	if w.failovers == 0 {
		return
	}
	try("the replica has caught up", func(n *world) { n.replica = *n.table.Clone() })
	if w.seen(nil) {
		try("the replica takes over", func(n *world) {
			n.failovers--
			server := n.table.Server + 1
			n.table = *n.replica.Clone()
			n.table.Server = server
			n.replica = *n.table.Clone()
		})
	}
}

// seen reports whether every running relay has read a lease time as long as any that may be lost, which is an assumption. For a
// single row each must have read the acquisition, too.
func (w *world) seen(row *leasetest.Row) bool {
	for i := range w.relays {
		for j := range w.relays {
			h, r := &w.relays[i], &w.relays[j]
			if h.mayHold() && i != j && r.up && (r.part.Longest() < h.time() || row != nil && r.part.Newest() < row.Term) {
				return false
			}
		}
	}
	return true
}

// mayStart reports whether a relay that has read nothing waits long enough for every holder that is not in the table.
func (w *world) mayStart(r *relay) bool {
	for i := range w.relays {
		h := &w.relays[i]
		if h.mayHold() && h.time() > r.time() && !slices.ContainsFunc(w.table.Rows, h.wrote) {
			return false
		}
	}
	return true
}

// view is the result of a read now.
func (w *world) view() protocol.View {
	v := w.table.Read(ever)
	if w.mutant.anyServer {
		v.Server = 1
	}
	if w.mutant.noTime {
		for i := range v.Rows {
			v.Rows[i].Process, _, _ = strings.Cut(v.Rows[i].Process, "000ms")
		}
	}
	return v
}

// done runs a statement on the server.
func (w *world) done(s statement) bool {
	w.writes++
	now := origin.Add(time.Duration(w.writes) * time.Second)
	if w.mutant.anyServer {
		s.take.Server, s.own.Server = w.table.Server, w.table.Server
	}
	if i := slices.IndexFunc(w.table.Rows, func(r leasetest.Row) bool { return r.Term == s.own.Term }); i >= 0 {
		if r := &w.table.Rows[i]; w.mutant.anyProcess && slices.Equal(r.Tables, s.own.Tables) {
			s.own.Process = r.Process
		} else if w.mutant.anyTables && r.Process == s.own.Process {
			s.own.Tables = r.Tables
		}
	}
	at := protocol.Resume{At: outbox.Position{File: "f"}}
	at.Source.ServerID = s.own.Server
	switch s.kind {
	case "begin":
		w.table.Begin(s.birth, s.take.Newest)
	case "take":
		return w.table.Take(s.take, 0, now) == nil
	case "renew":
		return w.table.Renew(s.own, at, 0, now)
	case "release":
		return w.table.Release(s.own, at)
	}
	return true
}
