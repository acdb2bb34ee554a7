// Package ledger is the account of exactly_once: which rows were published in which transaction, until their table shows them as SENT. Each
// transaction has an Entry, which is stored in the state topic together with the messages.
//
// Guarantee: from the entries that a compacted topic keeps, Restore finds every row that is committed and not settled. The package does no I/O and
// owns no goroutine.
package ledger

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/twmb/franz-go/pkg/kbin"
)

// Slots is how many of the newest transactions the state topic keeps: the key of a record is the number of its transaction modulo this.
const Slots = 64

// Entry is the record of one transaction in the state topic. It is stored in the same transaction as the messages.
type Entry struct {
	Number uint64 // of the transaction, from 1
	// Low: every row of this transaction and of those before up to this number is settled. Number-Low is at most Slots, so the
	// topic has all transactions behind Low.
	Low     uint64
	Process string            // random, of the process that wrote it
	Tables  []string          // that the relay publishes
	Rows    []outbox.Identity // its own, and then those that it takes over from older transactions

	own     int    // of rows: those of its own messages
	slots   uint64 // of the ledger
	settled uint64 // what ledger.settled was when it was made
}

// Key is the record's key. It is not for a decoded entry.
func (e *Entry) Key() []byte { return strconv.AppendUint(nil, e.Number%e.slots, 10) }

const entryVersion = 1

// Encode returns the record's value. Tables are written once.
func (e *Entry) Encode() []byte {
	tables := slices.Clone(e.Tables)
	for i := range e.Rows {
		if !slices.Contains(tables, e.Rows[i].Table) {
			tables = append(tables, e.Rows[i].Table)
		}
	}
	b := kbin.AppendVarint(nil, entryVersion)
	b = kbin.AppendVarlong(kbin.AppendVarlong(b, int64(e.Number)), int64(e.Low))
	b = kbin.AppendVarintString(b, e.Process)
	b = kbin.AppendVarint(b, int32(len(tables)))
	for _, t := range tables {
		b = kbin.AppendVarintString(b, t)
	}
	b = kbin.AppendVarint(b, int32(len(e.Rows)))
	for i := range e.Rows {
		row := &e.Rows[i]
		b = kbin.AppendVarint(b, int32(slices.Index(tables, row.Table)))
		b = kbin.AppendVarintString(kbin.AppendVarintString(b, row.ID), row.MessageID)
	}
	return b
}

// Decode reads what Encode wrote; false: it is no such value, or of a newer version.
func Decode(value []byte) (e Entry, ok bool) {
	r := kbin.Reader{Src: value}
	if r.Varint() != entryVersion {
		return e, false
	}
	e.Number, e.Low, e.Process = uint64(r.Varlong()), uint64(r.Varlong()), r.VarintString()
	for n := r.Varint(); n > 0 && r.Ok(); n-- {
		e.Tables = append(e.Tables, r.VarintString())
	}
	for n := r.Varint(); n > 0 && r.Ok(); n-- {
		at := int(r.Varint())
		if at < 0 || at >= len(e.Tables) {
			return e, false
		}
		e.Rows = append(e.Rows, outbox.Identity{Table: e.Tables[at], ID: r.VarintString(), MessageID: r.VarintString()})
	}
	return e, r.Complete() == nil && e.Low < e.Number && e.Number-e.Low <= Slots
}

// Bounds of an entry in bytes, by Size. Its record stays below LeastRecordBytes, which the state topic must accept.
const (
	MaxOwnBytes      = 256 << 10 // of its own rows
	maxEntryBytes    = 800_000
	LeastRecordBytes = 1_000_000
)

// Size is at most what a row adds to an entry.
func Size(row outbox.Identity) int { return 16 + len(row.ID) + len(row.MessageID) }

func sizeOf(rows []outbox.Identity) (n int) {
	for i := range rows {
		n += Size(rows[i])
	}
	return n
}

// Ledger holds which rows were published in which transaction and are not settled. It is safe for concurrent use.
type Ledger struct {
	process string
	slots   uint64

	mu      sync.Mutex
	rows    map[outbox.Identity]uint64 // not settled: their transaction
	open    map[uint64]int             // rows of a transaction that are not settled; none is 0, and none is older than slots
	settled uint64                     // counts calls that settled rows
	last    Entry                      // the newest that is committed; its rows are not kept
}

// New returns a ledger of a process, before any transaction. The state topic keeps this number of slots, at most Slots.
func New(process string, slots uint64) *Ledger {
	return &Ledger{process: process, slots: slots, rows: map[outbox.Identity]uint64{}, open: map[uint64]int{}}
}

// Next returns the entry of the next transaction for these rows. It takes over the rows of the transaction whose slot it uses. nil: there are
// too many of those.
func (l *Ledger) Next(rows []outbox.Identity) *Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.begin()
	e.Rows, e.own = slices.Clone(rows), len(rows)
	if e.Number > l.slots {
		e.Rows = l.takeOver(e.Rows, e.Number-l.slots)
		e.Low = e.Number - l.slots
	}
	if len(e.Rows) > e.own && sizeOf(e.Rows) > maxEntryBytes {
		return nil
	}
	e.Low = max(e.Low, l.lowest(e.Number))
	return e
}

// Mark returns an entry that takes over rows, the oldest first, so that Low is as high as it can be; nil when the newest one shows the
// same.
func (l *Ledger) Mark() *Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled == l.last.settled && l.last.Low+1 >= l.last.Number {
		return nil
	}
	e := l.begin()
	e.Low = e.Number - 1
	for n := max(e.Number, l.slots) - l.slots; n < e.Number; n++ {
		before := len(e.Rows)
		if e.Rows = l.takeOver(e.Rows, n); before > 0 && sizeOf(e.Rows) > maxEntryBytes {
			e.Rows, e.Low = e.Rows[:before], n-1
			return e
		}
	}
	return e
}

func (l *Ledger) begin() *Entry {
	return &Entry{Number: l.last.Number + 1, Process: l.process, settled: l.settled, slots: l.slots}
}

// takeOver appends the rows of a transaction that are not settled. Callers hold mu.
func (l *Ledger) takeOver(rows []outbox.Identity, number uint64) []outbox.Identity {
	if l.open[number] == 0 {
		return rows
	}
	own := len(rows)
	for id, n := range l.rows {
		if n == number {
			rows = append(rows, id)
		}
	}
	slices.SortFunc(rows[own:], compare) // equal histories give equal entries
	return rows
}

// lowest is the number before that of the oldest transaction with rows that are not settled. Callers hold mu.
func (l *Ledger) lowest(next uint64) uint64 {
	low := next - 1
	for n := range l.open {
		low = min(low, n-1)
	}
	return low
}

// Committed notes that the transaction of an entry is committed. It comes before the results of its messages are reported. A row that it took
// over may be settled meanwhile.
func (l *Ledger) Committed(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, id := range e.Rows {
		if l.drop(id) || i < e.own {
			l.rows[id] = e.Number
			l.open[e.Number]++
		}
	}
	l.last = *e
	l.last.Rows = nil
}

// drop forgets a row and reports whether it was there. Callers hold mu.
func (l *Ledger) drop(id outbox.Identity) bool {
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

// Settle forgets rows. Unknown ones are ignored.
func (l *Ledger) Settle(rows iter.Seq[outbox.Identity]) {
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

// Restore begins with what the state topic has, in the order of the numbers, and returns the rows behind Low. The entries are whole, see Whole.
func (l *Ledger) Restore(entries []Entry) []outbox.Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = Entry{}
	clear(l.rows)
	clear(l.open)
	if len(entries) == 0 {
		return nil
	}
	newest := entries[len(entries)-1]
	for _, e := range entries {
		if e.Number <= newest.Low {
			continue
		}
		for _, id := range e.Rows {
			l.drop(id)
			l.rows[id] = e.Number
			l.open[e.Number]++
		}
	}
	l.last, l.last.Rows = newest, nil
	l.last.settled = l.settled
	return slices.SortedFunc(maps.Keys(l.rows), compare)
}

func compare(a, b outbox.Identity) int {
	return cmp.Or(strings.Compare(a.Table, b.Table), strings.Compare(a.ID, b.ID), strings.Compare(a.MessageID, b.MessageID))
}

// Whole reports whether there is a newest entry, and all behind its Low. Entries are in the order of their numbers.
func Whole(entries []Entry) bool {
	if len(entries) == 0 {
		return false
	}
	newest := entries[len(entries)-1]
	behind := 0
	for i := range entries {
		if entries[i].Number > newest.Low {
			behind++
		}
	}
	return behind == int(newest.Number-newest.Low)
}
