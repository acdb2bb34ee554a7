package demo

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// message is what the ledger knows of an outbox row: its message id and the digest of its content.
type message struct {
	id  string
	sum uint64
}

// digest stands for the content of a message: the same value for what was written to the table and what a consumer got.
func digest(key string, body []byte) uint64 {
	h := fnv.New64a()
	// A hash never fails to write.
	_, _ = h.Write([]byte(key))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(body)
	return h.Sum64()
}

// arrival is one record as the broker stored it.
type arrival struct {
	message
	at time.Time
}

// knowledge is what the application knows of a message.
type knowledge uint8

const (
	unheard   knowledge = iota // it arrived, and no transaction that wrote it has been acknowledged
	uncertain                  // the commit failed without an answer: the database knows
	committed
)

// entry is one message id in the ledger.
type entry struct {
	known  knowledge
	sum    uint64    // as committed
	asked  time.Time // just before COMMIT was sent
	copies int       // arrivals
	first  time.Time // arrival
	got    uint64    // digest of the first arrival
	mixed  bool      // a later copy had another content
}

// ledger keeps both sides of the account: what the application committed and what a consumer received. A message may
// arrive before its commit is acknowledged, so nothing is judged before the end. It is safe for concurrent use.
type ledger struct {
	mu         sync.Mutex
	entries    map[string]*entry
	waiting    map[string]time.Time // committed and not arrived: when COMMIT was sent
	committed  int                  // messages
	published  int                  // distinct committed messages that arrived
	copies     int                  // arrivals beyond the first of each message
	rolledBack int                  // transactions
	failures   []error
	window     []time.Duration // since the last look
	quiet      []time.Duration // since the start, until Disturb
	disturbed  bool
}

func newLedger() *ledger {
	return &ledger{entries: map[string]*entry{}, waiting: map[string]time.Time{}}
}

func (l *ledger) entry(id string) *entry {
	e := l.entries[id]
	if e == nil {
		e = &entry{}
		l.entries[id] = e
	}
	return e
}

// Committed notes messages of a transaction whose COMMIT, sent at asked, was acknowledged.
func (l *ledger) Committed(messages []message, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		e := l.entry(m.id)
		e.known, e.sum, e.asked = committed, m.sum, asked
		l.committed++
		if e.copies > 0 {
			l.delivered(e)
		} else {
			l.waiting[m.id] = asked
		}
	}
}

// Uncertain notes messages of a transaction whose COMMIT has no answer.
func (l *ledger) Uncertain(messages []message, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		e := l.entry(m.id)
		e.known, e.sum, e.asked = uncertain, m.sum, asked
	}
}

// RolledBack counts a transaction that the application rolled back.
func (l *ledger) RolledBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rolledBack++
}

// Failed notes an error that the application got from the database, and returns how many there are.
func (l *ledger) Failed(err error) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, err)
	return len(l.failures)
}

// Arrived notes what a consumer received.
func (l *ledger) Arrived(arrivals []arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range arrivals {
		e := l.entry(a.id)
		e.copies++
		if e.copies > 1 {
			l.copies++
			e.mixed = e.mixed || a.sum != e.got
			continue
		}
		e.first, e.got = a.at, a.sum
		if e.known == committed {
			delete(l.waiting, a.id)
			l.delivered(e)
		}
	}
}

// delivered counts a message that is committed and has arrived; the caller holds mu.
func (l *ledger) delivered(e *entry) {
	l.published++
	took := e.first.Sub(e.asked)
	l.window = append(l.window, took)
	if !l.disturbed {
		l.quiet = append(l.quiet, took)
	}
}

// Disturb ends the undisturbed time, whose latencies are reported on their own.
func (l *ledger) Disturb() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disturbed = true
}

// Waiting counts the committed messages that have not arrived and whose COMMIT was sent before limit.
func (l *ledger) Waiting(limit time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, asked := range l.waiting {
		if asked.Before(limit) {
			n++
		}
	}
	return n
}

// Copies counts what was received beyond the first of each message.
func (l *ledger) Copies() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.copies
}

// tally is the state of the ledger at one moment. Latencies are from sending COMMIT to the arrival.
type tally struct {
	committed, published int
	took                 latencies // of what was delivered since the last look
}

// Look returns the counts, and the latencies since the last look.
func (l *ledger) Look() tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := tally{committed: l.committed, published: l.published, took: latencies(l.window)}
	l.window = nil
	return t
}

// Quiet returns the latencies before the first fault.
func (l *ledger) Quiet() latencies {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.quiet)
}

// latencies are samples in any order.
type latencies []time.Duration

// at returns the sample below which the share q of all lies, and false when there is none. It sorts the samples.
func (s latencies) at(q float64) (time.Duration, bool) {
	if len(s) == 0 {
		return 0, false
	}
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)], true
}
