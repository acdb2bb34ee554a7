package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Account is the comparison at the end. Lists hold message ids, sorted.
type Account struct {
	Committed  int // messages whose transaction was acknowledged, or later found committed
	RolledBack int // transactions that the application rolled back
	Published  int // distinct committed messages that a consumer received
	Copies     int // received after the first
	KillCopies int // of these, received between the SIGKILL and the end of its backlog

	Missing  []string // committed, not received
	Invented []string // received, never committed
	Altered  []string // received with another content than committed, and the difference
	Failures []error  // errors of the application's own transactions

	Rows   map[string]int // rows of the outbox table by status
	Unsent []string       // rows that are not SENT, each with its status and reason
	// Gaps are the causes of the recorded gaps; nil when they could not be read.
	Gaps []string
	// GapWanted is set when the binlog was purged under the relay.
	GapWanted bool
}

// Account compares both sides. inTable reports whether the database has an uncertain message.
func (b *book) Account(ctx context.Context, inTable func(ctx context.Context, id string) (bool, error)) (Account, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.uncertain) > 0 {
		row := b.uncertain[0]
		there, err := inTable(ctx, row.MessageID)
		if err != nil {
			return Account{}, fmt.Errorf("ask for the outcome of a commit without an answer (%s): %w", row.MessageID, err)
		}
		if there {
			b.ledger.Committed(row)
		}
		b.uncertain = b.uncertain[1:]
	}
	found := b.ledger.Compare(b.records)
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

// sentStatus is the name of the status SENT.
const sentStatus = "SENT"

// total counts the rows of the table.
func (a Account) total() int {
	n := 0
	for _, rows := range a.Rows {
		n += rows
	}
	return n
}

// gapFound reports whether the purge was recorded.
func (a Account) gapFound() bool { return slices.Contains(a.Gaps, "purged") }

// Err lists what is wrong, with the first ids; nil when everything is right.
func (a Account) Err() error {
	var faults []string
	list := func(ids []string, what string) {
		if len(ids) > 0 {
			faults = append(faults, fmt.Sprintf("%s %s: %s", count(len(ids)), what, some(ids)))
		}
	}
	list(a.Missing, "committed but not published")
	list(a.Invented, "published but never committed")
	list(a.Altered, "published with another content than committed")
	list(a.Unsent, "rows not SENT")
	if rows := a.total(); rows != a.Committed {
		faults = append(faults, fmt.Sprintf("the table holds %s rows, the application committed %s", count(rows), count(a.Committed)))
	}
	if a.GapWanted && !a.gapFound() {
		faults = append(faults, fmt.Sprintf("the purged binlog is not among the recorded gaps (%s)", strings.Join(a.Gaps, ", ")))
	}
	if len(a.Failures) > 0 {
		faults = append(faults, fmt.Sprintf("%s business transactions failed, the first with: %v", count(len(a.Failures)), a.Failures[0]))
	}
	if a.Committed == 0 {
		faults = append(faults, "the application committed nothing")
	}
	if faults == nil {
		return nil
	}
	return fmt.Errorf("the account does not hold:\n  %s", strings.Join(faults, "\n  "))
}

// shown is the number of ids printed.
const shown = 10

func some(ids []string) string {
	if len(ids) <= shown {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(ids[:shown], ", "), count(len(ids)-shown))
}
