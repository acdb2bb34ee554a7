package canal

import (
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// group is the open transaction.
type group struct {
	gtid      outbox.GTID
	committed time.Time
	xid       string
	cause     outbox.Cause // why the group is deferred; "" as long as it is not
	bytes     int
	messages  []*outbox.Message
	inserts   []insertCount // per table, mapped or not yet decided
	changed   []*mapped     // tables with UPDATE or DELETE
	named     []*mapped     // tables that a statement may have changed
	anyTable  bool          // it may have changed any of ours
}

type insertCount struct {
	table    *mapped
	rows     int
	unmapped int // of them; deferred whatever becomes of the group
}

func (g *group) discard() {
	*g = group{gtid: g.gtid, committed: g.committed, inserts: g.inserts[:0], changed: g.changed[:0], named: g.named[:0]}
}

// deferAll drops what is buffered; the first cause stays.
func (g *group) deferAll(cause outbox.Cause) {
	if g.cause == "" {
		g.cause = cause
		g.messages, g.bytes = nil, 0
	}
}

// deferred lists what is left to the sweep, by table and cause.
func (g *group) deferred() []outbox.Deferred {
	var out []outbox.Deferred
	for _, c := range g.inserts {
		if c.unmapped > 0 {
			out = append(out, outbox.Deferred{Table: c.table.name, Cause: outbox.CauseUnmapped, Rows: c.unmapped})
		}
		if g.cause != "" && (c.rows > c.unmapped || c.rows == 0) {
			out = append(out, outbox.Deferred{Table: c.table.name, Cause: g.cause, Rows: c.rows - c.unmapped})
		}
	}
	for _, t := range g.named {
		if !slices.ContainsFunc(g.inserts, func(c insertCount) bool { return c.table == t }) {
			out = append(out, outbox.Deferred{Table: t.name, Cause: g.cause})
		}
	}
	if g.anyTable {
		out = append(out, outbox.Deferred{Cause: g.cause})
	}
	return out
}
