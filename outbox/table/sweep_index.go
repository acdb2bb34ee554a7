package table

import (
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// strategy is how the sweep goes through the rows of a status: in the order of the index that the table has. InnoDB keeps the
// primary key behind the columns of each index, so that (status, due) and (status, due, id) are one order.
type strategy uint8

const (
	byKey      strategy = iota // no index in whose order rows can be read: all rows of the table, by the primary key
	byStatus                   // (status): the rows of a status, by the primary key
	byCreated                  // (status, created)
	byAttempts                 // (status, attempts, due): for each number of attempts, fewest first
	byDue                      // (status, due)
)

// strategies are the orders of columns behind the status that are known, the preferred one first.
var strategies = []struct {
	strategy strategy
	behind   []Column
}{
	{byDue, []Column{NextRetryTime}},
	{byAttempts, []Column{RetryCount, NextRetryTime}},
	{byCreated, []Column{CreatedAt}},
	{byStatus, nil},
}

// sweepIndex chooses the index of the sweep.
func (c *check) sweepIndex(t *Table) {
	for _, one := range strategies {
		if slices.ContainsFunc(one.behind, func(role Column) bool { return !t.has(role) }) {
			continue
		}
		columns := t.lower(slices.Concat([]Column{StatusCode}, one.behind))
		withID := append(slices.Clip(columns), t.lower([]Column{ID})...)
		found := c.index(func(i index) bool { return slices.Equal(i.columns, columns) || slices.Equal(i.columns, withID) })
		if found == nil {
			continue
		}
		t.strategy = one.strategy
		t.sweepIndex.Store(&found.name)
		if one.strategy == byStatus && t.has(NextRetryTime) {
			c.add(server.OK, "", fmt.Sprintf("the index %s has no time behind the status: each sweep looks at every row that waits, also at those that are due later", found.name), "")
		}
		return
	}
	code := t.lower([]Column{StatusCode})[0]
	if found := c.index(func(i index) bool { return i.columns[0] == code }); found != nil {
		c.change(server.Warning, "", fmt.Sprintf("the index %s begins with the status, but what stands behind it is no order that the sweep can follow: "+
			"each page of a sweep may read and sort all rows that wait", found.name), t.addSweepIndex())
		return
	}
	primary := "PRIMARY"
	t.sweepIndex.Store(&primary)
	c.change(server.Warning, "", "no index on the status: every sweep reads the whole table, and the more so the more rows it keeps", t.addSweepIndex())
}

// lower are the columns of roles, as describeIndexes writes them.
func (t *Table) lower(roles []Column) []string {
	names := make([]string, len(roles))
	for i, role := range roles {
		names[i] = strings.ToLower(t.columns[role].Name)
	}
	return names
}

// addSweepIndex is the clause of an ALTER TABLE that makes the index which the sweep reads best. Only an operator runs it.
func (t *Table) addSweepIndex() string {
	columns := t.column(StatusCode)
	switch {
	case t.has(NextRetryTime):
		columns += ", " + t.column(NextRetryTime)
	case t.has(CreatedAt):
		columns += ", " + t.column(CreatedAt)
	}
	return fmt.Sprintf("ADD INDEX idx_outbox_sweep (%s, %s)", columns, t.column(ID))
}

// part says which rows of a status a stretch has, by the time that the index has behind it.
type part uint8

const (
	whole   part = iota // every row, in the order of the primary key
	untimed             // those without the time, in the order of the primary key
	timed               // those with it, in its order
	aged                // those made long enough ago, in the order of their making
	ahead               // those made ahead of the clock, likewise
)

// stretch is a part of the index within which rows come in one order: each page begins where the one before ended.
type stretch struct {
	status outbox.Status
	part   part
}

// final reports whether no row of the stretch is ever due.
func (in stretch) final() bool { return in.status == outbox.Sent || in.status == outbox.Failed }

// stretches are what a query goes through, in this order. Where the strategy is byAttempts there is one of each for every number
// of attempts.
func (t *Table) stretches(q DueQuery) (list []stretch) {
	for _, status := range []outbox.Status{outbox.Pending, outbox.Sending} {
		if status == outbox.Sending && !t.claims() {
			continue
		}
		list = append(list, t.stretchesOf(status, q)...)
	}
	return list
}

// stretchesOf are those of one status.
func (t *Table) stretchesOf(status outbox.Status, q DueQuery) (list []stretch) {
	var parts []part
	switch {
	case t.strategy == byDue || t.strategy == byAttempts:
		parts = []part{untimed, timed}
	case t.strategy == byCreated && status == outbox.Pending && q.Threshold > 0 && !t.has(NextRetryTime):
		// A range leaves the young rows out. Rows with a due time are wanted however young they are.
		parts = []part{untimed, aged, ahead}
	case t.strategy == byCreated:
		parts = []part{untimed, timed}
	default:
		parts = []part{whole}
	}
	for _, part := range parts {
		list = append(list, stretch{status, part})
	}
	return list
}

// timeBehind is the time in whose order the index has rows of a status; the zero role, which is no time, when it has none.
func (t *Table) timeBehind() Column {
	switch t.strategy {
	case byDue, byAttempts:
		return NextRetryTime
	case byCreated:
		return CreatedAt
	}
	return ID
}
