package table

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Strategy is how the sweep goes through the rows of a status: in the order of the index that the table has. InnoDB keeps the
// primary key behind the columns of each index, so that (status, due) and (status, due, id) are one order.
type Strategy uint8

const (
	ByKey      Strategy = iota // no index in whose order rows can be read: all rows of the table, by the primary key
	ByStatus                   // (status): the rows of a status, by the primary key
	ByCreated                  // (status, created)
	ByAttempts                 // (status, attempts, due): for each number of attempts, fewest first
	ByDue                      // (status, due)
)

// strategies are the orders of columns behind the status that are known, the preferred one first.
var strategies = []struct {
	strategy Strategy
	behind   []Column
}{
	{ByDue, []Column{NextRetryTime}},
	{ByAttempts, []Column{RetryCount, NextRetryTime}},
	{ByCreated, []Column{CreatedAt}},
	{ByStatus, nil},
}

// sweepIndex chooses the index of the sweep.
func (c *check) sweepIndex(t *Table) {
	for _, one := range strategies {
		if slices.ContainsFunc(one.behind, func(role Column) bool { return !t.Has(role) }) {
			continue
		}
		columns := t.lower(slices.Concat([]Column{StatusCode}, one.behind))
		withID := append(slices.Clip(columns), t.lower([]Column{ID})...)
		found := c.index(func(i Index) bool { return slices.Equal(i.Columns, columns) || slices.Equal(i.Columns, withID) })
		if found == nil {
			continue
		}
		t.strategy = one.strategy
		t.sweepIndex.Store(&found.Name)
		if one.strategy == ByStatus && t.Has(NextRetryTime) {
			c.add(server.OK, "", fmt.Sprintf("the index %s has no time behind the status: each sweep looks at every row that waits, also at those that are due later", found.Name), "")
		}
		return
	}
	code := t.lower([]Column{StatusCode})[0]
	if found := c.index(func(i Index) bool { return i.Columns[0] == code }); found != nil {
		c.change(server.Warning, "", fmt.Sprintf("the index %s begins with the status, but what is behind it is no order that the sweep can follow: "+
			"each page of a sweep may read and sort all rows that wait", found.Name), t.AddSweepIndex())
		return
	}
	primary := "PRIMARY"
	t.sweepIndex.Store(&primary)
	c.change(server.Warning, "", "no index on the status: every sweep reads the whole table, and the more so the more rows it keeps", t.AddSweepIndex())
}

// lower are the columns of roles, as describeIndexes writes them.
func (t *Table) lower(roles []Column) []string {
	names := make([]string, len(roles))
	for i, role := range roles {
		names[i] = strings.ToLower(t.columns[role].Name)
	}
	return names
}

// AddSweepIndex is the clause of an ALTER TABLE that makes the index which the sweep reads best. Only an operator runs it.
func (t *Table) AddSweepIndex() string {
	columns := t.Column(StatusCode)
	switch {
	case t.Has(NextRetryTime):
		columns += ", " + t.Column(NextRetryTime)
	case t.Has(CreatedAt):
		columns += ", " + t.Column(CreatedAt)
	}
	return fmt.Sprintf("ADD INDEX idx_outbox_sweep (%s, %s)", columns, t.Column(ID))
}

// Strategy is how a sweep goes through the rows of a status.
func (t *Table) Strategy() Strategy { return t.strategy }

// SweepIndex is the index that the sweep's queries force; "" where the server chooses.
func (t *Table) SweepIndex() string { return indexOf(&t.sweepIndex) }

// AgeIndex is the index by which old final rows are found; "" for the primary key.
func (t *Table) AgeIndex() string { return indexOf(&t.ageIndex) }

// ForgetAgeIndex is called when the index is gone.
func (t *Table) ForgetAgeIndex() { t.ageIndex.Store(nil) }

func indexOf(name *atomic.Pointer[string]) string {
	if index := name.Load(); index != nil {
		return *index
	}
	return ""
}
