package checkpoint

import (
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// journal is what a writer keeps in memory of the entries on the disk: where each row's entry is. The writer of the store owns it.
//
// The rows that one commit sends are one record. It is deleted when all of them are written. Until then a second record, a bit for each
// row, says which of them are: so a row that is written has left the journal in the same batch, and a record is written once.
type journal struct {
	records map[uint64]*sentRows // by number
	last    uint64               // number of the newest record
	touched []*sentRows          // by the commit under way

	mu     sync.Mutex // of what follows; it is held for short sections only
	seed   maphash.Seed
	places map[uint64]place // by the hash of the row's key; without pointers, because there may be a million
	key    []byte           // of the row whose hash is computed
}

// place is where a row's entry is: the number of the record (39 bits), the row's index in it (24 bits), and whether the row is left there (1 bit): nothing
// else in memory has it.
type place uint64

const indexBits = 24

func placeOf(number uint64, index int) place { return place(number<<(indexBits+1) | uint64(index)<<1) }

func (p place) number() uint64 { return uint64(p >> (indexBits + 1)) }
func (p place) index() int     { return int(p >> 1 & (1<<indexBits - 1)) }

// sentRows is one record of the journal.
type sentRows struct {
	number  uint64
	left    int    // rows that are not written
	written []byte // a bit for each row
	marked  bool   // the disk has such bits
	touched bool
}

func newJournal() journal {
	return journal{seed: maphash.MakeSeed(), places: map[uint64]place{}, records: map[uint64]*sentRows{}}
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.places)
}

// put adds one commit to the batch: first written leaves the journal, then sent enters it, because a row may be written
// and sent again in one batch. The state in memory is ahead of the disk until the batch is written.
func (j *journal) put(b *batch, now time.Time, sent []outbox.Completion, written []outbox.Identity) error {
	j.touched = j.touched[:0]
	j.removeAll(written)
	if err := j.putSent(b, now, sent); err != nil {
		return err
	}
	for _, rows := range j.touched {
		rows.touched = false
		if rows.left == 0 {
			delete(j.records, rows.number)
		}
		if err := rows.putWritten(b); err != nil {
			return err
		}
	}
	return nil
}

// putSent adds a record of the rows to the batch. A row that is in the journal already leaves it first.
func (j *journal) putSent(b *batch, now time.Time, sent []outbox.Completion) error {
	if len(sent) == 0 {
		return nil
	}
	j.last++
	j.records[j.last] = newSentRows(j.last, len(sent))
	j.place(sent)
	b.key = numberedKey(b.key[:0], kindSent, j.last)
	b.val = appendSent(b.val[:0], now, sent)
	return b.put()
}

// place makes the newest record the place of its rows.
func (j *journal) place(sent []outbox.Completion) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range sent {
		hash := j.hash(sent[i].Identity)
		j.remove(hash)
		j.places[hash] = placeOf(j.last, i)
	}
}

func (j *journal) removeAll(written []outbox.Identity) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range written {
		j.remove(j.hash(written[i]))
	}
}

func newSentRows(number uint64, n int) *sentRows {
	return &sentRows{number: number, left: n, written: make([]byte, (n+7)/8)}
}

// hash identifies a row. Lengths come first, so that no byte in a table name or an id makes two identities the same. Two rows with one hash, of a million,
// are less likely than one in ten million.
func (j *journal) hash(id outbox.Identity) uint64 {
	j.key = appendText(j.key[:0], id.Table)
	j.key = appendText(j.key, id.ID)
	j.key = append(j.key, id.MessageID...)
	return maphash.Bytes(j.seed, j.key)
}

// remove removes a row from the journal. A row that is not in it is no error.
func (j *journal) remove(hash uint64) {
	at, found := j.places[hash]
	if !found {
		return
	}
	delete(j.places, hash)
	in := j.records[at.number()]
	in.mark(at.index())
	if !in.touched {
		in.touched = true
		j.touched = append(j.touched, in)
	}
}

// setLeft marks a row that is left, or no more, and reports whether it was not so before.
func (j *journal) setLeft(id outbox.Identity, left bool) (changed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	hash := j.hash(id)
	at, found := j.places[hash]
	if !found || at&1 == 1 == left {
		return false
	}
	j.places[hash] = at ^ 1
	return true
}

// find returns where a row's entry is.
func (j *journal) find(id outbox.Identity) (at place, found bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at, found = j.places[j.hash(id)]
	return at, found
}

func (r *sentRows) mark(index int) {
	r.written[index/8] |= 1 << (index % 8)
	r.left--
}

// has reports whether a row is written.
func (r *sentRows) has(index int) bool { return r.written[index/8]&(1<<(index%8)) != 0 }

// putWritten adds to the batch what became of a record: it goes when nothing of it is left.
func (r *sentRows) putWritten(b *batch) error {
	b.key = numberedKey(b.key[:0], kindWritten, r.number)
	if r.left > 0 {
		b.val = append(append(b.val[:0], blankHeader[:]...), r.written...)
		r.marked = true
		return b.put()
	}
	if r.marked {
		if err := b.Delete(b.key, nil); err != nil {
			return err
		}
	}
	b.key[0] = kindSent
	return b.Delete(b.key, nil)
}

// journalRow is one entry as it is read.
type journalRow struct {
	outbox.Completion
	at    time.Time
	in    *sentRows
	index int
}

// journalReader puts entries together while the records are read in the order of their keys: a record of bits comes before the record
// of rows that it belongs to.
type journalReader struct {
	bits map[uint64][]byte
}

func isJournal(kind byte) bool { return kind == kindWritten || kind == kindSent }

// read calls each for the rows of a record that are in the journal.
func (r *journalReader) read(key, value []byte, each func(journalRow)) error {
	if key[0] == kindWritten {
		return r.readBits(key, value)
	}
	return r.readSent(key, value, each)
}

func (r *journalReader) readBits(key, value []byte) error {
	bits, err := unseal(key, value)
	if err != nil {
		return err
	}
	number, err := numberOf(key)
	if err != nil {
		return err
	}
	if r.bits == nil {
		r.bits = map[uint64][]byte{}
	}
	r.bits[number] = append([]byte(nil), bits...)
	return nil
}

func (r *journalReader) readSent(key, value []byte, each func(journalRow)) error {
	sent, at, err := decodeSent(key, value, nil)
	if err != nil {
		return err
	}
	number, err := numberOf(key)
	if err != nil {
		return err
	}
	rows, err := r.take(newSentRows(number, len(sent)))
	if err != nil {
		return err
	}
	written := 0
	for i := range sent {
		if rows.has(i) {
			written++
			continue
		}
		each(journalRow{Completion: sent[i], at: at, in: rows, index: i})
	}
	if rows.left -= written; rows.left == 0 {
		return fmt.Errorf("%w: nothing is left of a record of the journal", errRecord)
	}
	return nil
}

// take gives a record of rows its bits.
func (r *journalReader) take(rows *sentRows) (*sentRows, error) {
	if bits, found := r.bits[rows.number]; found {
		delete(r.bits, rows.number)
		if len(bits) != len(rows.written) {
			return nil, fmt.Errorf("%w: %d bytes of bits for %d rows of the journal", errRecord, len(bits), rows.left)
		}
		rows.written, rows.marked = bits, true
	}
	return rows, nil
}

// end is nil when every record of bits belongs to a record of rows.
func (r *journalReader) end() error {
	if len(r.bits) > 0 {
		return fmt.Errorf("%w: %d record(s) of the journal are gone", errRecord, len(r.bits))
	}
	return nil
}

// load takes an entry over that was read at the start.
func (j *journal) load(row journalRow) {
	j.last = max(j.last, row.in.number)
	j.places[j.hash(row.Identity)] = placeOf(row.in.number, row.index)
	j.records[row.in.number] = row.in
}
