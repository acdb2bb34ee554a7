package checkpoint

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// journal is what a writer knows of the entries on the disk: where each row's is. It belongs to whoever may write.
//
// The rows that one commit sends are one record. It is deleted when all of them are written. Until then a second record, a bit for each
// row, says which of them are: so a row that is written has left the journal in the same batch, and a record is written once.
type journal struct {
	seed    maphash.Seed
	places  map[uint64]place // by the hash of the row's key
	last    uint64           // number of the newest record
	touched []*sentRows      // by the commit under way
}

// place is where a row's entry is.
type place struct {
	in    *sentRows // nil: a record of its own, as releases until 0.1 wrote it
	index int
}

// sentRows is one record of the journal.
type sentRows struct {
	number  uint64
	left    int    // rows that are not written
	written []byte // a bit for each row
	marked  bool   // the disk has such bits
	touched bool
}

func newJournal() journal {
	return journal{seed: maphash.MakeSeed(), places: map[uint64]place{}}
}

func (j *journal) len() int { return len(j.places) }

// putJournal adds one commit to the batch: written leaves the journal, then sent enters it, for a row may be written and be sent anew in
// one batch. What the memory knows is ahead of the disk until the batch is there.
func (s *Store) putJournal(now time.Time, sent []outbox.Completion, written []outbox.Identity) error {
	j := &s.journal
	j.touched = j.touched[:0]
	for i := range written {
		if err := s.removeRow(s.hashRow(written[i])); err != nil {
			return err
		}
	}
	if err := s.putSent(now, sent); err != nil {
		return err
	}
	for _, rows := range j.touched {
		rows.touched = false
		if err := s.putWritten(rows); err != nil {
			return err
		}
	}
	return nil
}

// putSent adds a record of the rows to the batch. A row that is in the journal already leaves it first.
func (s *Store) putSent(now time.Time, sent []outbox.Completion) error {
	if len(sent) == 0 {
		return nil
	}
	j := &s.journal
	j.last++
	rows := newSentRows(j.last, len(sent))
	for i := range sent {
		hash := s.hashRow(sent[i].Identity)
		if err := s.removeRow(hash); err != nil {
			return err
		}
		j.places[hash] = place{rows, i}
	}
	s.key = numberedKey(s.key[:0], kindSent, rows.number)
	s.val = appendSent(s.val[:0], now, sent)
	return s.put()
}

func newSentRows(number uint64, n int) *sentRows {
	return &sentRows{number: number, left: n, written: make([]byte, (n+7)/8)}
}

// hashRow leaves the key of the row's own record, of which it is the hash, in the buffer.
func (s *Store) hashRow(id outbox.Identity) uint64 {
	s.key = appendJournalKey(s.key[:0], id)
	return maphash.Bytes(s.journal.seed, s.key)
}

// removeRow lets the row leave the journal whose key is in the buffer; one that is not there is no error.
func (s *Store) removeRow(hash uint64) error {
	at, found := s.journal.places[hash]
	switch {
	case !found:
		return nil
	case at.in == nil:
		delete(s.journal.places, hash)
		return s.batch.Delete(s.key, nil)
	}
	delete(s.journal.places, hash)
	at.in.mark(at.index)
	if !at.in.touched {
		at.in.touched = true
		s.journal.touched = append(s.journal.touched, at.in)
	}
	return nil
}

func (r *sentRows) mark(index int) {
	r.written[index/8] |= 1 << (index % 8)
	r.left--
}

// putWritten adds to the batch what became of a record: it goes when nothing of it is left.
func (s *Store) putWritten(rows *sentRows) error {
	s.key = numberedKey(s.key[:0], kindWritten, rows.number)
	if rows.left > 0 {
		s.val = append(append(s.val[:0], blankHeader[:]...), rows.written...)
		rows.marked = true
		return s.put()
	}
	if rows.marked {
		if err := s.batch.Delete(s.key, nil); err != nil {
			return err
		}
	}
	s.key[0] = kindSent
	return s.batch.Delete(s.key, nil)
}

// journalRow is one entry as it is read.
type journalRow struct {
	outbox.Completion
	at time.Time
	place
}

// journalReader puts entries together while the records are read in the order of their keys: a record of bits comes before the record
// of rows that it belongs to.
type journalReader struct {
	bits map[uint64][]byte
}

func isJournal(kind byte) bool { return kind >= kindJournal && kind <= kindSent }

// read calls each for the rows of a record that are in the journal.
func (r *journalReader) read(key, value []byte, each func(journalRow)) error {
	switch key[0] {
	case kindWritten:
		return r.readBits(key, value)
	case kindSent:
		return r.readSent(key, value, each)
	}
	entry, at, err := decodeJournal(key, value)
	if err == nil {
		each(journalRow{Completion: entry, at: at})
	}
	return err
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
	sent, at, err := decodeSent(key, value)
	if err != nil {
		return err
	}
	number, err := numberOf(key)
	if err != nil {
		return err
	}
	rows := newSentRows(number, len(sent))
	if bits, found := r.bits[number]; found {
		delete(r.bits, number)
		if len(bits) != len(rows.written) {
			return fmt.Errorf("%w: %d bytes of bits for %d rows of the journal", errRecord, len(bits), len(sent))
		}
		rows.written, rows.marked = bits, true
	}
	written := 0
	for i := range sent {
		if rows.written[i/8]&(1<<(i%8)) != 0 {
			written++
			continue
		}
		each(journalRow{Completion: sent[i], at: at, place: place{rows, i}})
	}
	if rows.left -= written; rows.left == 0 {
		return fmt.Errorf("%w: nothing is left of a record of the journal", errRecord)
	}
	return nil
}

// end is nil when every record of bits belongs to a record of rows.
func (r *journalReader) end() error {
	if len(r.bits) > 0 {
		return fmt.Errorf("%w: %d record(s) of the journal are gone", errRecord, len(r.bits))
	}
	return nil
}

// loadRow takes an entry over that was read at the start.
func (s *Store) loadRow(row journalRow) {
	if row.in != nil {
		s.journal.last = max(s.journal.last, row.in.number)
	}
	s.journal.places[s.hashRow(row.Identity)] = row.place
}

// Journal returns the rows that the broker has taken and MySQL has not written, in no particular order.
func (s *Store) Journal() (out []outbox.Completion, err error) {
	var rows journalReader
	err = s.scan(kindJournal, kindSent, func(key, value []byte) error {
		return rows.read(key, value, func(row journalRow) { out = append(out, row.Completion) })
	})
	if err == nil {
		err = classify(s.dir, rows.end())
	}
	return out, err
}
