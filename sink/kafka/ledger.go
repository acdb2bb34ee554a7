package kafka

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/twmb/franz-go/pkg/kbin"
)

// ledgerSlots is how many of the newest transactions the state topic keeps: the key of a record is the number of its transaction modulo this.
const ledgerSlots = 64

// entry is the record of one transaction in the state topic. It is stored in the same transaction as the messages.
type entry struct {
	number uint64 // of the transaction, from 1
	// low: every row of this transaction and of those before up to this number is settled. number-low is at most ledgerSlots, so the
	// topic has all transactions behind low.
	low     uint64
	process string            // random, of the process that wrote it
	tables  []string          // that the relay publishes
	rows    []outbox.Identity // its own, and then those that it takes over from older transactions

	own     int    // of rows: those of its own messages
	settled uint64 // what ledger.settled was when it was made
}

// key is the record's key.
func (e *entry) key() []byte { return strconv.AppendUint(nil, e.number%ledgerSlots, 10) }

const entryVersion = 1

// encode returns the record's value. Tables are written once.
func (e *entry) encode() []byte {
	tables := slices.Clone(e.tables)
	for i := range e.rows {
		if !slices.Contains(tables, e.rows[i].Table) {
			tables = append(tables, e.rows[i].Table)
		}
	}
	b := kbin.AppendVarint(nil, entryVersion)
	b = kbin.AppendVarlong(kbin.AppendVarlong(b, int64(e.number)), int64(e.low))
	b = kbin.AppendVarintString(b, e.process)
	b = kbin.AppendVarint(b, int32(len(tables)))
	for _, t := range tables {
		b = kbin.AppendVarintString(b, t)
	}
	b = kbin.AppendVarint(b, int32(len(e.rows)))
	for i := range e.rows {
		row := &e.rows[i]
		b = kbin.AppendVarint(b, int32(slices.Index(tables, row.Table)))
		b = kbin.AppendVarintString(kbin.AppendVarintString(b, row.ID), row.MessageID)
	}
	return b
}

// decodeEntry reads what encode wrote; false: it is no such value, or of a newer version.
func decodeEntry(value []byte) (e entry, ok bool) {
	r := kbin.Reader{Src: value}
	if r.Varint() != entryVersion {
		return e, false
	}
	e.number, e.low, e.process = uint64(r.Varlong()), uint64(r.Varlong()), r.VarintString()
	for n := r.Varint(); n > 0 && r.Ok(); n-- {
		e.tables = append(e.tables, r.VarintString())
	}
	for n := r.Varint(); n > 0 && r.Ok(); n-- {
		at := int(r.Varint())
		if at < 0 || at >= len(e.tables) {
			return e, false
		}
		e.rows = append(e.rows, outbox.Identity{Table: e.tables[at], ID: r.VarintString(), MessageID: r.VarintString()})
	}
	return e, r.Complete() == nil && e.low < e.number && e.number-e.low <= ledgerSlots
}

// Bounds of an entry in bytes, by size. Its record stays below leastStateBytes, which the state topic must accept.
const (
	maxOwnBytes     = 256 << 10 // of its own rows
	maxEntryBytes   = 800_000
	leastStateBytes = 1_000_000
)

// size is at most what a row adds to an entry.
func size(row outbox.Identity) int { return 16 + len(row.ID) + len(row.MessageID) }

func sizeOf(rows []outbox.Identity) (n int) {
	for i := range rows {
		n += size(rows[i])
	}
	return n
}

// ledger knows which rows were published in which transaction and are not settled. It does no I/O. It is safe for concurrent use.
type ledger struct {
	process string

	mu      sync.Mutex
	rows    map[outbox.Identity]uint64 // not settled: their transaction
	open    map[uint64]int             // rows of a transaction that are not settled; none is 0, and none is older than ledgerSlots
	settled uint64                     // counts calls that settled rows
	last    entry                      // the newest that is committed; its rows are not kept
}

func newLedger(process string) *ledger {
	return &ledger{process: process, rows: map[outbox.Identity]uint64{}, open: map[uint64]int{}}
}

// next returns the entry of the next transaction for these rows. It takes over the rows of the transaction whose slot it uses. nil: there are
// too many of those.
func (l *ledger) next(rows []outbox.Identity) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry()
	e.rows, e.own = slices.Clone(rows), len(rows)
	if e.number > ledgerSlots {
		e.rows = l.takeOver(e.rows, e.number-ledgerSlots)
		e.low = e.number - ledgerSlots
	}
	if len(e.rows) > e.own && sizeOf(e.rows) > maxEntryBytes {
		return nil
	}
	e.low = max(e.low, l.lowest(e.number))
	return e
}

// mark returns an entry that takes over rows, the oldest first, so that low is as high as it can be; nil when the newest one shows the
// same.
func (l *ledger) mark() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled == l.last.settled && l.last.low+1 >= l.last.number {
		return nil
	}
	e := l.entry()
	e.low = e.number - 1
	for n := max(e.number, ledgerSlots) - ledgerSlots; n < e.number; n++ {
		before := len(e.rows)
		if e.rows = l.takeOver(e.rows, n); before > 0 && sizeOf(e.rows) > maxEntryBytes {
			e.rows, e.low = e.rows[:before], n-1
			return e
		}
	}
	return e
}

func (l *ledger) entry() *entry {
	return &entry{number: l.last.number + 1, process: l.process, settled: l.settled}
}

// takeOver appends the rows of a transaction that are not settled. Callers hold mu.
func (l *ledger) takeOver(rows []outbox.Identity, number uint64) []outbox.Identity {
	if l.open[number] == 0 {
		return rows
	}
	for id, n := range l.rows {
		if n == number {
			rows = append(rows, id)
		}
	}
	return rows
}

// lowest is the number before that of the oldest transaction with rows that are not settled. Callers hold mu.
func (l *ledger) lowest(next uint64) uint64 {
	low := next - 1
	for n := range l.open {
		low = min(low, n-1)
	}
	return low
}

// committed notes that the transaction of an entry is committed. It comes before the results of its messages are reported. A row that it took
// over may be settled meanwhile.
func (l *ledger) committed(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, id := range e.rows {
		if l.drop(id) || i < e.own {
			l.rows[id] = e.number
			l.open[e.number]++
		}
	}
	l.last = *e
	l.last.rows = nil
}

// drop forgets a row and reports whether it was there. Callers hold mu.
func (l *ledger) drop(id outbox.Identity) bool {
	n, is := l.rows[id]
	if !is {
		return false
	}
	delete(l.rows, id)
	if l.open[n]--; l.open[n] == 0 {
		delete(l.open, n)
	}
	return true
}

// settle forgets rows. Unknown ones are ignored.
func (l *ledger) settle(rows iter.Seq[outbox.Identity]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	any := false
	for id := range rows {
		any = l.drop(id) || any
	}
	if any {
		l.settled++
	}
}

// restore begins with what the state topic has, in the order of the numbers, and returns the rows behind low. The entries are whole.
func (l *ledger) restore(entries []entry) []outbox.Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = entry{}
	clear(l.rows)
	clear(l.open)
	if len(entries) == 0 {
		return nil
	}
	newest := entries[len(entries)-1]
	for _, e := range entries {
		if e.number <= newest.low {
			continue
		}
		for _, id := range e.rows {
			l.drop(id)
			l.rows[id] = e.number
			l.open[e.number]++
		}
	}
	l.last, l.last.rows = newest, nil
	l.last.settled = l.settled
	return slices.Collect(maps.Keys(l.rows))
}
