package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
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
	Gaps   map[string]int // recorded gaps by cause
	// GapWanted is set when the binlog was purged under the relay.
	GapWanted bool
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

// purged is the cause of a gap in the binlog.
const purged = string(outbox.GapPurged)

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
	if a.GapWanted && a.Gaps[purged] == 0 {
		faults = append(faults, fmt.Sprintf("the purged binlog is not among the recorded gaps (%s)", strings.Join(slices.Sorted(maps.Keys(a.Gaps)), ", ")))
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
