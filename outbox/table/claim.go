package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/canal-outbox/canal-outbox/outbox"
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
func (s *Store) Claim(ctx context.Context, candidates []outbox.Candidate) (stamp string, err error) {
	if len(candidates) == 0 {
		return "", errors.New("claim: no rows")
	}
	t, err := s.table(candidates[0].Table)
	if err != nil {
		return "", err
	}
	if !t.claims() {
		return "", nil
	}
	var groups [3][]outbox.Candidate
	candidates, refused := named(t, candidates, rowOf)
	defer func() { s.refused.add(refused...) }()
	for _, c := range candidates {
		if c.Table != t.name {
			return "", fmt.Errorf("claim: rows of %s and of %s in one call", t.name, c.Table)
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
		return "", fmt.Errorf("claim rows of %s: %w", t.name, err)
	}
	for how, group := range groups {
		for chunk := range slices.Chunk(group, maxRows) {
			apart, err := isolate(chunk, rowOf, func(some []outbox.Candidate) error {
				_, err := changeFree(ctx, s, t, some, func(free []outbox.Candidate) *statement { return t.claim(claim(how), stamp, free) })
				return err
			})
			if refused = append(refused, apart...); err != nil {
				return stamp, fmt.Errorf("claim rows of %s: %w", t.name, err)
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
func (s *Store) newStamp(ctx context.Context, t *Table) (stamp string, err error) {
	precision := strconv.Itoa(t.columns[LastExecTime].Fraction)
	err = s.db.QueryRowContext(ctx,
		"SELECT CAST(CAST("+t.now(LastExecTime)+" AS DATETIME("+precision+")) AS CHAR)").Scan(&stamp)
	return stamp, err
}

func (t *Table) claim(how claim, stamp string, rows []outbox.Candidate) *statement {
	s := &statement{}
	id := func(i int) string { return rows[i].ID }
	t.change(s, len(rows), id)
	s.add(t.column(StatusCode), " = ")
	t.code(s, outbox.Sending)
	s.add(", ", t.column(LastExecTime), " = ")
	s.string(stamp)
	t.assignCommon(s)
	t.where(s, len(rows), id)
	if how == claimPending {
		t.statusIn(s, outbox.Pending)
		t.isDue(s)
	} else {
		t.statusIn(s, outbox.Sending)
	}
	if how == claimUnstamped {
		s.add(" AND ", t.column(LastExecTime), " IS NULL")
	}
	s.add(" AND (", t.column(ID), ", ", t.messageID())
	if how == claimStamped {
		s.add(", ", t.stamp())
	}
	s.add(") IN (")
	s.list(len(rows), func(i int) {
		s.add("(")
		t.id(s, rows[i].ID)
		s.add(", ")
		s.bytes(rows[i].MessageID)
		if how == claimStamped {
			s.add(", ")
			s.string(rows[i].ClaimToken)
		}
		s.add(")")
	})
	s.add(")")
	return s
}

// isDue writes that the due time of a row has come, or nearly so.
func (t *Table) isDue(s *statement) {
	if t.has(NextRetryTime) {
		s.add(" AND (", t.column(NextRetryTime), " IS NULL OR ", t.column(NextRetryTime), " <= ", t.now(NextRetryTime),
			" + INTERVAL ", strconv.Itoa(earlyMicros), " MICROSECOND)")
	}
}
