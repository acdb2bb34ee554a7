package canal

import (
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// group is the open transaction.
type group struct {
	start     outbox.Position // after the previous transaction
	gtid      outbox.GTID
	committed time.Time
	xid       string
	cause     outbox.Cause // why the group is deferred; "" if it is not
	bytes     int
	messages  []*outbox.Message
	inserts   []insertCount // per table, mapped or undecided
	changed   []*mapped     // tables with UPDATE or DELETE
	named     []*mapped     // tables that a statement may have changed
	anyTable  bool          // it may have changed any mapped table

	doubt    outbox.Cause // why rows of a table without a status cannot be published as they are; "" if they can
	doubtful *mapped      // the table of doubt
	undone   bool         // a statement has rolled rows back
	large    bool         // rows of such tables exceed the limit: they were dropped, and are read in pieces
}

type insertCount struct {
	table    *mapped
	rows     int
	unmapped int // of them; deferred whatever happens to the group
}

func (g *group) discard() {
	*g = group{gtid: g.gtid, committed: g.committed, inserts: g.inserts[:0], changed: g.changed[:0], named: g.named[:0]}
}

// deferAll drops the buffered rows, except those that cannot be deferred; the first cause is kept.
func (g *group) deferAll(cause outbox.Cause) {
	if g.cause != "" {
		return
	}
	g.cause = cause
	var rest []*outbox.Message
	g.bytes = 0
	for _, m := range g.messages {
		if m.LogOnly {
			rest, g.bytes = append(rest, m), g.bytes+m.Size()
		}
	}
	g.messages = rest
}

// hold records that rows of a table without a status are in doubt; the first cause is kept.
func (g *group) hold(t *mapped, cause outbox.Cause) {
	if g.doubt == "" {
		g.doubt, g.doubtful = cause, t
	}
}

// holdAll calls hold for every such table in the group.
func (g *group) holdAll(cause outbox.Cause) {
	for _, c := range g.inserts {
		if c.table.only {
			g.hold(c.table, cause)
		}
	}
}

// deferred lists what the sweep must publish, by table and cause.
func (g *group) deferred() []outbox.Deferred {
	var out []outbox.Deferred
	for _, c := range g.inserts {
		if c.table.only {
			continue
		}
		if c.unmapped > 0 {
			out = append(out, outbox.Deferred{Table: c.table.name, Cause: outbox.CauseUnmapped, Rows: c.unmapped})
		}
		if g.cause != "" && (c.rows > c.unmapped || c.rows == 0) {
			out = append(out, outbox.Deferred{Table: c.table.name, Cause: g.cause, Rows: c.rows - c.unmapped})
		}
	}
	for _, t := range g.named {
		if !t.only && !slices.ContainsFunc(g.inserts, func(c insertCount) bool { return c.table == t }) {
			out = append(out, outbox.Deferred{Table: t.name, Cause: g.cause})
		}
	}
	if g.anyTable {
		out = append(out, outbox.Deferred{Cause: g.cause})
	}
	return out
}
