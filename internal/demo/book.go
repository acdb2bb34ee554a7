package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

// arrival is one record as the broker stored it.
type arrival struct {
	relay.Record
	at time.Time
}

// knowledge is the state of a message for the application.
type knowledge uint8

const (
	unheard   knowledge = iota // it arrived, and no transaction with it has been acknowledged
	uncertain                  // the commit failed without an answer: the table decides
	committed
)

// entry is one message id in the ledger.
type entry struct {
	known  knowledge
	asked  time.Time // right before COMMIT was sent
	copies int       // arrivals
	first  time.Time // arrival
}

// book has both sides of the account: what the application committed, in the ledger, and what a consumer received. A message may
// arrive before its commit is acknowledged, so the comparison is made at the end only; the other fields are figures of the
// progress. It is safe for concurrent use.
type book struct {
	mu         sync.Mutex
	ledger     *relay.Ledger
	uncertain  []relay.Row    // rows of a transaction whose COMMIT has no answer
	records    []relay.Record // in the order of arrival
	entries    map[string]*entry
	waiting    map[string]time.Time // committed and not arrived: time of sending COMMIT
	committed  int                  // messages
	published  int                  // distinct committed messages that arrived
	copies     int                  // arrivals beyond the first of each message
	rolledBack int                  // transactions
	failures   []error
	window     []time.Duration // since the last look
	quiet      []time.Duration // since the start, until Disturb
	disturbed  bool
}

func newBook() *book {
	return &book{ledger: relay.NewLedger(), entries: map[string]*entry{}, waiting: map[string]time.Time{}}
}

func (b *book) entry(id string) *entry {
	e := b.entries[id]
	if e == nil {
		e = &entry{}
		b.entries[id] = e
	}
	return e
}

// Committed records messages of a transaction whose COMMIT, sent at asked, was acknowledged.
func (b *book) Committed(rows []relay.Row, asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.Committed(rows...)
	for _, m := range rows {
		e := b.entry(m.MessageID)
		e.known, e.asked = committed, asked
		b.committed++
		if e.copies > 0 {
			b.delivered(e)
		} else {
			b.waiting[m.MessageID] = asked
		}
	}
}

// Uncertain records messages of a transaction whose COMMIT has no answer.
func (b *book) Uncertain(rows []relay.Row, asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uncertain = append(b.uncertain, rows...)
	for _, m := range rows {
		e := b.entry(m.MessageID)
		e.known, e.asked = uncertain, asked
	}
}

// RolledBack counts a transaction that the application rolled back.
func (b *book) RolledBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rolledBack++
}

// Failed records an error of the application's transactions, and returns the number of errors.
func (b *book) Failed(err error) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = append(b.failures, err)
	return len(b.failures)
}

// Arrived records what a consumer received.
func (b *book) Arrived(arrivals []arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range arrivals {
		b.records = append(b.records, a.Record)
		e := b.entry(a.MessageID)
		e.copies++
		if e.copies > 1 {
			b.copies++
			continue
		}
		e.first = a.at
		if e.known == committed {
			delete(b.waiting, a.MessageID)
			b.delivered(e)
		}
	}
}

// delivered counts a message that is committed and has arrived; the caller holds mu.
func (b *book) delivered(e *entry) {
	b.published++
	took := e.first.Sub(e.asked)
	b.window = append(b.window, took)
	if !b.disturbed {
		b.quiet = append(b.quiet, took)
	}
}

// Disturb ends the undisturbed time, whose latencies are reported separately.
func (b *book) Disturb() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disturbed = true
}

// Waiting counts the committed messages that have not arrived and whose COMMIT was sent before limit.
func (b *book) Waiting(limit time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, asked := range b.waiting {
		if asked.Before(limit) {
			n++
		}
	}
	return n
}

// Copies counts what was received after the first of each message.
func (b *book) Copies() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copies
}

// tally is the state of the ledger at one time. Latencies are from sending COMMIT to the arrival.
type tally struct {
	committed, published int
	took                 latencies // of what was delivered since the last look
}

// Look returns the counts, and the latencies since the last look.
func (b *book) Look() tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := tally{committed: b.committed, published: b.published, took: latencies(b.window)}
	b.window = nil
	return t
}

// Quiet returns the latencies before the first fault.
func (b *book) Quiet() latencies {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.quiet)
}

// latencies are samples in any order.
type latencies []time.Duration

// at returns the sample at the quantile q, and false when there is none. It sorts the samples.
func (s latencies) at(q float64) (time.Duration, bool) {
	if len(s) == 0 {
		return 0, false
	}
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)], true
}
