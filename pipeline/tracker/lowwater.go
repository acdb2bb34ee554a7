package tracker

import (
	"fmt"
	"math"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// lowWater is the low-water mark over the transactions of the log: the end of the last transaction below which every row is
// settled. It is a pure type: no clock, no lock, no I/O.
//
// Transactions are opened in log order with their number of rows and settled row by row in any order. Transactions without
// rows cost no slot while they follow one another, however many there are, so memory is bounded by the rows in flight.
type lowWater struct {
	low   outbox.Position // end of the settled prefix; GTIDs is not kept here but in set
	set   *outbox.GTIDSet // transactions of the settled prefix; nil for a server without GTIDs
	slots []slot          // open transactions, oldest first; slots[0] belongs to sequence number first
	first uint64
	floor uint64 // numbers below belong to transactions that reset forgot

	passed []slot // those with rows that are kept, or pieces, since takePassed
}

// slot is one transaction with rows, or a run of transactions without.
type slot struct {
	left   int // rows not settled yet
	rows   int // rows at opening; 0 for a run of foreign transactions
	end    outbox.Position
	gtid   outbox.GTID
	merged *outbox.GTIDSet // of a run of more than one; nil otherwise
	kept   []*Entry        // of its rows those that are to be kept until it is passed
	piece  bool            // of a transaction whose end is still to come
}

// newLowWater starts at a position; its GTID set, when it has one, is parsed in the given flavour.
func newLowWater(flavor outbox.Flavor, at outbox.Position) (*lowWater, error) {
	m := &lowWater{first: 1, floor: 1}
	return m, m.reset(flavor, at)
}

// reset forgets all open transactions and starts at a new position. Sequence numbers continue, so that completions of forgotten
// transactions differ from wrong ones.
func (m *lowWater) reset(flavor outbox.Flavor, at outbox.Position) error {
	set, err := outbox.ParseGTIDSet(flavor, at.GTIDs)
	if err != nil {
		return err
	}
	m.first += uint64(len(m.slots))
	m.floor = m.first
	clear(m.slots)
	m.slots = m.slots[:0]
	m.set = set
	m.low = outbox.Position{File: at.File, Offset: at.Offset}
	return nil
}

// open opens a transaction with the given number of rows and returns its sequence number; 0 when it has none.
func (m *lowWater) open(end outbox.Position, gtid outbox.GTID, rows int) uint64 {
	if rows > 0 {
		m.slots = append(m.slots, slot{left: rows, rows: rows, end: end, gtid: gtid})
		return m.first + uint64(len(m.slots)) - 1
	}
	if len(m.slots) == 0 {
		m.low = end
		m.set.Add(gtid)
		return 0
	}
	last := &m.slots[len(m.slots)-1]
	if last.rows > 0 {
		m.slots = append(m.slots, slot{end: end, gtid: gtid})
		return 0
	}
	if last.merged == nil {
		last.merged = outbox.NewGTIDSet(m.set.Flavor())
		last.merged.Add(last.gtid)
	}
	last.merged.Add(gtid)
	last.end = end
	return 0
}

// idle moves it to a position that the server says is behind everything, when nothing is open.
func (m *lowWater) idle(at outbox.Position) {
	if len(m.slots) == 0 && at.File != "" && m.low.Compare(at) < 0 {
		m.low = outbox.Position{File: at.File, Offset: at.Offset}
	}
}

// settle marks one row of a transaction as settled. Settling more rows than were opened, or a transaction never opened, is
// an error of the caller; transactions forgotten by reset are ignored.
func (m *lowWater) settle(seq uint64) error {
	if m.forgotten(seq) {
		return nil
	}
	if seq < m.first {
		return fmt.Errorf("low-water mark: transaction %d is settled twice", seq)
	}
	if seq >= m.first+uint64(len(m.slots)) {
		return fmt.Errorf("low-water mark: transaction %d was never opened", seq)
	}
	s := &m.slots[seq-m.first]
	if s.left == 0 {
		return fmt.Errorf("low-water mark: transaction %d is settled twice", seq)
	}
	s.left--
	m.advance()
	return nil
}

// withdrawn replaces the number of a transaction that was dropped.
const withdrawn = math.MaxUint64

// forgotten reports whether reset has forgotten a transaction or it was dropped.
func (m *lowWater) forgotten(seq uint64) bool { return seq < m.floor || seq == withdrawn }

// drop takes the transaction that was opened last out again, unless it is settled already: its number will be another's. It returns the
// rows that it kept.
func (m *lowWater) drop(seq uint64) (kept []*Entry) {
	if n := len(m.slots); n > 0 && seq == m.first+uint64(n)-1 {
		kept = m.slots[n-1].kept
		m.slots[n-1] = slot{}
		m.slots = m.slots[:n-1]
	}
	return kept
}

// slot is that of an open transaction; nil when it is not open.
func (m *lowWater) slot(seq uint64) *slot {
	if m.forgotten(seq) || seq < m.first || seq >= m.first+uint64(len(m.slots)) {
		return nil
	}
	return &m.slots[seq-m.first]
}

func (m *lowWater) takePassed() []slot {
	passed := m.passed
	m.passed = nil
	return passed
}

func (m *lowWater) advance() {
	n := 0
	for n < len(m.slots) && m.slots[n].left == 0 {
		s := &m.slots[n]
		if s.piece { // it ends where the mark is, or where the mark was before the log was idle
			s.end = m.low
		}
		m.low = s.end
		if s.merged != nil {
			m.set.AddSet(s.merged)
		} else {
			m.set.Add(s.gtid)
		}
		if len(s.kept) > 0 {
			m.passed = append(m.passed, *s)
		}
		*s = slot{}
		n++
	}
	m.slots = m.slots[n:]
	m.first += uint64(n)
}

// position returns it with the text of its GTID set.
func (m *lowWater) position() outbox.Position {
	p := m.low
	p.GTIDs = m.set.String()
	return p
}
