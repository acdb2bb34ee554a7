package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// earlyMicros is how much before its due time a row may be claimed: a timer of this process and the database's clock do
// not tick together, and a row that just misses would wait for the next sweep.
const earlyMicros = 50_000

// Claim marks rows of one table as SENDING with a new stamp, which it returns: PENDING ones that are due, and SENDING ones that
// still show the stamp of the candidate. Rows that changed meanwhile are not claimed. ReadBack shows which rows were claimed. A
// stamp that comes with an error may be on some of the rows. A row that no statement can name, or whose change the server
// refuses, is not claimed and noted as refused. A row that another session has locked is not claimed. The other rows are
// claimed.
//
// In a table without claims it changes nothing and returns "": the caller's registry of rows is the claim.
func (s changes) Claim(ctx context.Context, candidates []outbox.Candidate) (stamp string, err error) {
	if len(candidates) == 0 {
		return "", errors.New("claim: no rows")
	}
	t, err := s.table(candidates[0].Table)
	if err != nil {
		return "", err
	}
	if !t.Claims() {
		return "", nil
	}
	var groups [3][]outbox.Candidate
	candidates, refused := named(t, candidates, rowOf)
	defer func() { s.refused.add(refused...) }()
	for _, c := range candidates {
		if c.Table != t.Name() {
			return "", fmt.Errorf("claim: rows of %s and of %s in one call", t.Name(), c.Table)
		}
		switch {
		case c.Status == outbox.Pending:
			groups[claimPending] = append(groups[claimPending], c)
		case c.Status == outbox.Sending && c.ClaimToken != "":
			groups[claimStamped] = append(groups[claimStamped], c)
		case c.Status == outbox.Sending:
			groups[claimUnstamped] = append(groups[claimUnstamped], c)
		}
	}
	if stamp, err = s.newStamp(ctx, t); err != nil {
		return "", fmt.Errorf("claim rows of %s: %w", t.Name(), err)
	}
	for how, group := range groups {
		for chunk := range slices.Chunk(group, table.MaxRows) {
			apart, err := isolate(chunk, rowOf, func(some []outbox.Candidate) error {
				_, err := changeFree(ctx, s.tables, t, some, rowOf, func(free []outbox.Candidate) *table.Statement { return t.claim(claim(how), stamp, free) })
				return err
			})
			if refused = append(refused, apart...); err != nil {
				return stamp, fmt.Errorf("claim rows of %s: %w", t.Name(), err)
			}
		}
	}
	return stamp, nil
}

type claim uint8

const (
	claimPending claim = iota
	claimStamped
	claimUnstamped
)

// newStamp is the database's now, as the column would show it. It is read before it is written, because the rows that
// were claimed are found by it.
func (s changes) newStamp(ctx context.Context, t *mapped) (stamp string, err error) {
	precision := strconv.Itoa(t.Type(table.LastExecTime).Fraction)
	err = s.db.QueryRowContext(ctx,
		"SELECT CAST(CAST("+t.Now(table.LastExecTime)+" AS DATETIME("+precision+")) AS CHAR)").Scan(&stamp)
	return stamp, err
}

func (t *mapped) claim(how claim, stamp string, rows []outbox.Candidate) *table.Statement {
	row := func(i int) *outbox.Identity { return &rows[i].Identity }
	from := []outbox.Status{outbox.Sending}
	if how == claimPending {
		from[0] = outbox.Pending
	}
	return t.changing(len(rows), row, from, func(s *table.Statement) {
		s.Add(t.Column(table.StatusCode), " = ")
		t.Code(s, outbox.Sending)
		s.Add(", ", t.Column(table.LastExecTime), " = ")
		s.Arg(stamp)
	}, func(s *table.Statement) {
		switch how {
		case claimPending:
			t.isDue(s)
		case claimUnstamped:
			s.Add(" AND ", t.Column(table.LastExecTime), " IS NULL")
		case claimStamped:
			t.sameRows(s, len(rows), row, t.stamp(), func(i int) { s.Arg(rows[i].ClaimToken) })
			return
		}
		t.sameRows(s, len(rows), row, "", nil)
	})
}

// isDue writes that the time of a row has come, or nearly so, by the clock of the server that has the rows: a sweep that searches on a replica was
// told it by that server's clock.
func (t *mapped) isDue(s *table.Statement) {
	if wait := t.wait(); wait != "0" {
		s.Add(" AND ", wait, " <= ", strconv.Itoa(earlyMicros))
	}
}
