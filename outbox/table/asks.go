package table

import (
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// MaxCount is where counting of rows stops, so that a sample costs a bounded part of the index.
const MaxCount = 100_000

// DueQuery says which rows a sweep looks for. All times are compared by the database's clock.
type DueQuery struct {
	Threshold     time.Duration // PENDING rows without a due time: at least this old, or made ahead of the clock
	Horizon       time.Duration // PENDING rows with a due time: due within this from now; those not due yet are Waiting
	ExpiredClaims time.Duration // SENDING rows: claimed at least this long ago, ahead of the clock, or at no time; 0 takes every one
	Limit         int           // rows of one page; 0 means 500
}

// FinalQuery says which final rows are looked for, to go out again.
type FinalQuery struct {
	Status outbox.Status // Failed or Sent
	Age    time.Duration // they have this status for at least this time, by the database's clock
	Limit  int           // rows that a page looks at; 0 means 500
}

// FailedSince says in words from when on a row counts as FAILED.
func (t *Table) FailedSince() string {
	for _, role := range []Column{LastExecTime, UpdatedAt} {
		if t.Has(role) {
			return ", counted from " + t.columns[role].Name
		}
	}
	return ", all of them in one pass: no column says when a row failed"
}

// SentSince says in words from when on a row counts as SENT.
func (t *Table) SentSince() string {
	for _, role := range FinalSince(outbox.Sent) {
		if t.Has(role) {
			return " (counted from " + t.columns[role].Name + ")"
		}
	}
	return ""
}

// ExpiredPage is what one page of a walk over a table has seen.
type ExpiredPage struct {
	IDs    [][]string // primary keys of expired rows, by Expiry
	Looked int        // rows on the page
	Next   string     // where the next page begins, for Expired alone
	Done   bool       // the table ends here, or what follows is too young
}

// findAgeIndex looks for an index by which a walk sees old final rows only.
func (c *check) findAgeIndex(t *Table) {
	if !t.Has(CreatedAt) || t.columns[CreatedAt].Nullable {
		return
	}
	order := []string{strings.ToLower(t.columns[StatusCode].Name), strings.ToLower(t.columns[CreatedAt].Name)}
	index := c.index(func(i Index) bool {
		return slices.Equal(i.Columns, order) || slices.Equal(i.Columns, append(order, strings.ToLower(t.columns[ID].Name)))
	})
	if index != nil {
		t.ageIndex.Store(&index.Name)
	}
}
