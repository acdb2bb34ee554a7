package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Upcoming returns the PENDING rows that become due between from and to from now by the database's clock, the first to become due
// first, and no more than limit. A negative from shows rows whose time has come, too. Where the index has the due times in order it is
// read no further than that; else all PENDING rows are looked at, and those of that time are sorted. A row that the server cannot show is an
// error: then the sweep takes the rows of the table when they are overdue.
func (s finder) Upcoming(ctx context.Context, name string, from, to time.Duration, limit int) ([]outbox.Candidate, error) {
	t, err := s.table(name)
	if err != nil {
		return nil, err
	}
	if !t.Has(table.NextRetryTime) {
		return nil, nil // Due shows the rows that wait
	}
	ask := func() ([]outbox.Candidate, error) {
		if t.Strategy() == table.ByAttempts {
			return s.upcomingByAttempts(ctx, t, from, to, limit)
		}
		return s.candidates(ctx, t, t.upcoming(table.AttemptCount{}, from, to, limit))
	}
	candidates, err := ask()
	if t.ForgetIndex(err) {
		candidates, err = ask()
	}
	if err != nil {
		return nil, fmt.Errorf("look for the rows of %s that become due: %w", name, err)
	}
	return candidates, nil
}

// upcomingByAttempts puts the rows of each number of attempts together.
func (s finder) upcomingByAttempts(ctx context.Context, t *mapped, from, to time.Duration, limit int) (all []outbox.Candidate, err error) {
	for at := (table.AttemptCount{}); ; {
		if at, err = s.nextAttempts(ctx, t, outbox.Pending, at); errors.Is(err, sql.ErrNoRows) {
			break
		} else if err != nil {
			return nil, err
		}
		some, err := s.candidates(ctx, t, t.upcoming(at, from, to, limit))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		slices.SortStableFunc(all, func(a, b outbox.Candidate) int { return cmp.Compare(a.DueInMilli, b.DueInMilli) })
		all = all[:min(limit, len(all))]
	}
	return all, nil
}

func (t *mapped) upcoming(at table.AttemptCount, from, to time.Duration, limit int) *table.Statement {
	due := t.Column(table.NextRetryTime)
	s := t.selectState()
	t.FromIndex(s, table.CodeOf(t.Mapping().Codes[outbox.Pending]), at)
	s.Add(" AND ", due, " > ", t.Now(table.NextRetryTime), " + INTERVAL ")
	s.Micros(from)
	s.Add(" MICROSECOND AND ")
	t.dueWithin(s, to)
	s.Add(" ORDER BY ", due, ", ", t.Column(table.ID), " LIMIT ", strconv.Itoa(limit))
	return s
}
