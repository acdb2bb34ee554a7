package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

// book has both sides of the account: what the application committed, in the ledger, and figures of what a consumer received so
// far. A message may arrive before its commit is acknowledged. The account itself compares the ledger with the whole topic at the
// end. A book is safe for concurrent use.
type book struct {
	mu         sync.Mutex
	ledger     *relay.Ledger
	uncertain  []relay.Row          // rows of a transaction whose COMMIT has no answer
	waiting    map[string]time.Time // committed and not arrived: time of sending COMMIT
	arrived    map[string]time.Time // the first arrival
	published  int                  // distinct committed messages that arrived
	copies     int                  // arrivals beyond the first of each message
	rolledBack int                  // transactions
	failures   []error
	window     latencies // since the last look
	quiet      latencies // since the start, until Disturb
	disturbed  bool
}

func newBook() *book {
	return &book{ledger: relay.NewLedger(), waiting: map[string]time.Time{}, arrived: map[string]time.Time{}}
}

// Committed records messages of a transaction whose COMMIT, sent at asked, was acknowledged.
func (b *book) Committed(rows []relay.Row, asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.Committed(rows...)
	for _, m := range rows {
		if at, there := b.arrived[m.MessageID]; there {
			b.delivered(at.Sub(asked))
		} else {
			b.waiting[m.MessageID] = asked
		}
	}
}

// Uncertain records messages of a transaction whose COMMIT has no answer.
func (b *book) Uncertain(rows []relay.Row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uncertain = append(b.uncertain, rows...)
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
func (b *book) Arrived(records []relay.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		if _, again := b.arrived[r.MessageID]; again {
			b.copies++
			continue
		}
		b.arrived[r.MessageID] = r.Stored
		if asked, committed := b.waiting[r.MessageID]; committed {
			delete(b.waiting, r.MessageID)
			b.delivered(r.Stored.Sub(asked))
		}
	}
}

// delivered counts a message that is committed and has arrived; the caller holds mu.
func (b *book) delivered(took time.Duration) {
	b.published++
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

// Look returns the counts, and the latencies since the last look: from sending COMMIT to the arrival.
func (b *book) Look() (committed, published int, took latencies) {
	b.mu.Lock()
	defer b.mu.Unlock()
	took, b.window = b.window, nil
	return b.ledger.Len(), b.published, took
}

// Quiet returns the latencies before the first fault.
func (b *book) Quiet() latencies {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.quiet)
}

// Account compares the ledger with the records of the topic. inTable reports whether the database has an uncertain message.
func (b *book) Account(ctx context.Context, records []relay.Record, inTable func(ctx context.Context, id string) (bool, error)) (Account, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; len(b.uncertain) > 0; b.uncertain = b.uncertain[1:] {
		row := b.uncertain[0]
		there, err := inTable(ctx, row.MessageID)
		if err != nil {
			return Account{}, fmt.Errorf("ask for the outcome of a commit without an answer (%s): %w", row.MessageID, err)
		}
		if there {
			b.ledger.Committed(row)
		}
	}
	found := b.ledger.Compare(records)
	a := Account{
		Committed: b.ledger.Len(), RolledBack: b.rolledBack, Published: b.ledger.Len() - len(found.Lost), Copies: found.Duplicates(),
		Missing: found.Lost, Invented: found.Invented, Altered: found.Changed, Failures: b.failures,
	}
	for _, list := range []*[]string{&a.Missing, &a.Invented, &a.Altered} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return a, nil
}

// latencies are samples in any order.
type latencies []time.Duration

// at returns the sample at the quantile q as text, "-" when there is none. It sorts the samples.
func (s latencies) at(q float64) string {
	if len(s) == 0 {
		return "-"
	}
	slices.Sort(s)
	return brief(s[min(int(q*float64(len(s))), len(s)-1)])
}
