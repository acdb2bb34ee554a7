package canal

import (
	"fmt"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// assembler groups the events of one stream into transactions. It is pure: no I/O, no clock, no goroutine.
//
// It releases rows only at the end of their group: XID, Query COMMIT, the end of a compressed payload. It defers a whole group,
// for the sweep to read its rows from the table, when the group also has an UPDATE or DELETE on a table it inserts into, a Query
// other than BEGIN, SAVEPOINT and COMMIT, an XA PREPARE, or more bytes than the limit. It also releases groups without rows of
// mapped tables, because they move the checkpoint.
//
// Binlog groups: MySQL internals manual "Binary Log Overview"; MariaDB knowledge base "Gtid_event".
type assembler struct {
	limit int // bytes of mapped tables' rows in one transaction

	last     outbox.Position // after the last event
	open     bool
	begun    bool // an event that ends the group is expected; without it the next Query is the whole group
	group    group
	branches map[string][]*mapped // prepared XA branches by id, with the mapped tables that they may have changed
	slab     []outbox.Txn         // one allocation for many transactions

	// pieces is the end of a transaction that is known to be committed and has more rows of tables without a status than the
	// limit: its rows are released as they are read.
	pieces outbox.Position
	counts bool  // only the ends of transactions are needed, nothing is published
	stop   error // why the last transaction cannot be released
}

// maxBranches bounds the memory for prepared XA branches. A branch above the bound is treated like one that was prepared before
// this process began to read: its COMMIT may concern any table.
const maxBranches = 4096

// newAssembler starts at a transaction end. The reader owns branches, because a PREPARE and its outcome may arrive in different
// streams.
func newAssembler(limit int, from outbox.Position, branches map[string][]*mapped) *assembler {
	return &assembler{limit: limit, last: from, branches: branches}
}

// feed takes one event and returns the transaction that it ends, if any. A *gapError means that rows may be missing, a *heldError
// that the transaction cannot be released, a *largeError that it must be read again, in pieces.
func (a *assembler) feed(ev *event) (*outbox.Txn, error) {
	txn, err := a.step(ev)
	if err == nil && a.stop != nil {
		txn, err, a.stop = nil, a.stop, nil
	}
	return txn, err
}

func (a *assembler) step(ev *event) (*outbox.Txn, error) {
	before := a.last
	a.last = ev.end
	switch ev.kind {
	case kindReset:
		a.reset()
	case kindGTID:
		return a.begin(ev, before), nil
	case kindBegin:
		if !a.open {
			a.reset()
			a.open = true
		}
		a.begun, a.group.xid = true, ev.xid
	case kindInsert, kindChange:
		if !a.open {
			return nil, &gapError{outbox.GapUnknownEvent, fmt.Sprintf("rows outside of a transaction before %s", ev.end)}
		}
		if ev.kind == kindInsert {
			return a.insert(ev), nil
		}
		a.change(ev.table)
	case kindStatement:
		return a.statement(ev), nil
	case kindCommit:
		return a.finish(ev), nil
	case kindPayloadEnd:
		if a.open {
			return a.finish(ev), nil
		}
	case kindRollback:
		a.group.discard()
		return a.finish(ev), nil
	case kindPrepare:
		return a.prepare(ev), nil
	case kindXACommit, kindXARollback:
		return a.endBranch(ev), nil
	case kindIncident:
		return nil, &gapError{outbox.GapLostEvents, fmt.Sprintf("the server reports lost events (INCIDENT) before %s", ev.end)}
	case kindUnknown:
		if a.open {
			return nil, &gapError{
				outbox.GapUnknownEvent,
				fmt.Sprintf("event of unknown type %d inside a transaction before %s", ev.typ, ev.end),
			}
		}
	}
	return nil, nil
}

func (a *assembler) reset() {
	a.open, a.begun = false, false
	g := &a.group
	*g = group{inserts: g.inserts[:0], changed: g.changed[:0], named: g.named[:0]}
}

// begin opens a group. If the previous one is still open, the event that ended it is unknown: the rows that it inserted are
// deferred.
func (a *assembler) begin(ev *event, before outbox.Position) (unended *outbox.Txn) {
	if a.open {
		a.group.deferAll(outbox.CauseUnknown)
		a.group.holdAll(outbox.CauseUnknown)
		unended = a.finish(&event{end: before})
	}
	a.reset()
	a.open, a.begun = true, ev.begun
	a.group.start = before
	a.group.gtid, a.group.committed = ev.gtid, ev.committed
	return unended
}

// insert takes rows. When a transaction is read in pieces it returns the next piece.
func (a *assembler) insert(ev *event) (piece *outbox.Txn) {
	g := &a.group
	k := slices.IndexFunc(g.inserts, func(c insertCount) bool { return c.table == ev.table })
	if k < 0 {
		k = len(g.inserts)
		g.inserts = append(g.inserts, insertCount{table: ev.table})
	}
	if slices.Contains(g.changed, ev.table) {
		g.deferAll(outbox.CauseRewritten)
	}
	pieces := a.inPieces(ev)
	if pieces { // rows that can be deferred are deferred: some of them may be after a piece
		g.deferAll(outbox.CauseOversize)
	}
	if (g.cause != "" && !ev.table.only) || g.large { // these rows will not be published: do not decode or keep them
		g.inserts[k].rows += ev.rows.count()
		return nil
	}
	from := len(g.messages)
	var unmapped int
	g.messages, unmapped = ev.rows.messages(g.messages)
	g.inserts[k].rows += len(g.messages) - from + unmapped
	g.inserts[k].unmapped += unmapped
	for _, m := range g.messages[from:] {
		g.bytes += m.Size()
	}
	if unmapped > 0 && ev.table.only {
		g.hold(ev.table, outbox.CauseUnmapped)
	}
	if g.bytes > a.limit {
		g.deferAll(outbox.CauseOversize)
	}
	switch {
	case pieces && g.bytes > a.limit/4 && g.doubt == "":
		piece = a.txn()
		piece.End, piece.CommittedAt, piece.Messages, piece.More = g.start, g.committed, g.messages, true
		g.messages, g.bytes = nil, 0
	case !pieces && g.bytes > a.limit:
		g.large, g.messages, g.bytes = true, nil, 0
	}
	return piece
}

// inPieces reports whether an event belongs to a transaction that was already read to its end.
func (a *assembler) inPieces(ev *event) bool {
	return a.pieces.File == ev.end.File && ev.end.Offset <= a.pieces.Offset
}

func (a *assembler) change(t *mapped) {
	g := &a.group
	if t.only { // applications delete such rows in the transaction that wrote them
		return
	}
	if slices.Contains(g.changed, t) {
		return
	}
	g.changed = append(g.changed, t)
	if slices.ContainsFunc(g.inserts, func(c insertCount) bool { return c.table == t }) {
		g.deferAll(outbox.CauseRewritten)
	}
}

// statement handles a Query outside the transaction protocol. Before a BEGIN it is a group of its own (DDL).
func (a *assembler) statement(ev *event) *outbox.Txn {
	if !a.open {
		a.reset()
	}
	for _, t := range ev.names {
		if !slices.Contains(a.group.named, t) {
			a.group.named = append(a.group.named, t)
		}
	}
	a.group.deferAll(outbox.CauseStatement)
	a.group.undone = a.group.undone || ev.undo
	for _, t := range ev.names {
		if t.only && ev.inserts {
			a.group.hold(t, outbox.CauseStatement)
		}
	}
	if a.begun {
		return nil
	}
	return a.finish(ev)
}

// prepare ends the first half of an XA transaction. Its rows are in the log, but their commit is not decided yet (A31). A
// transaction that commits in one phase ends here too: no outcome follows, so nothing is kept.
func (a *assembler) prepare(ev *event) *outbox.Txn {
	g := &a.group
	g.deferAll(outbox.CauseXA)
	g.cause = outbox.CauseXA
	if !ev.final {
		g.holdAll(outbox.CauseXA)
	}
	if _, known := a.branches[g.xid]; !ev.final && g.xid != "" && (known || len(a.branches) < maxBranches) {
		tables := slices.Clone(g.named)
		for _, c := range g.inserts {
			tables = append(tables, c.table)
		}
		a.branches[g.xid] = tables
	}
	return a.finish(ev)
}

// endBranch is the second half of an XA transaction. Its rows become visible only with the COMMIT, so their tables are deferred
// again. A branch whose PREPARE was not read (before the start, inside a gap, or above maxBranches) may have rows of any table.
func (a *assembler) endBranch(ev *event) *outbox.Txn {
	g := &a.group
	if !a.open {
		a.reset()
	}
	g.deferAll(outbox.CauseXA)
	g.cause = outbox.CauseXA
	tables, known := a.branches[ev.xid]
	delete(a.branches, ev.xid)
	switch {
	case ev.kind == kindXARollback:
		g.discard()
	case !known:
		g.anyTable = true
	default:
		for _, t := range tables {
			if !slices.Contains(g.named, t) {
				g.named = append(g.named, t)
			}
		}
	}
	return a.finish(ev)
}

func (a *assembler) txn() *outbox.Txn {
	if len(a.slab) == 0 {
		a.slab = make([]outbox.Txn, 64)
	}
	txn := &a.slab[0]
	a.slab = a.slab[1:]
	return txn
}

// finish returns the group as a transaction and closes it.
func (a *assembler) finish(ev *event) *outbox.Txn {
	txn, g := a.txn(), &a.group
	if g.undone {
		g.holdAll(outbox.CauseStatement)
	}
	switch {
	case a.counts:
	case g.doubt != "":
		a.stop = &heldError{table: g.doubtful.name, cause: g.doubt, end: ev.end}
	case g.large:
		a.stop = &largeError{end: ev.end}
	}
	txn.End, txn.GTID, txn.CommittedAt = ev.end, g.gtid, g.committed
	if txn.CommittedAt.IsZero() {
		txn.CommittedAt = ev.committed
	}
	txn.Messages, txn.Deferred = g.messages, g.deferred()
	a.reset()
	return txn
}
