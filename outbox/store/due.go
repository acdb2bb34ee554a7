package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// pageQuery is what a page of due rows, or of final ones, is read by.
type pageQuery struct {
	table.DueQuery
	final time.Duration // FinalQuery.Age
}

// claimAhead is how far ahead of the database's clock a claim may lie that counts as a claim of now: the clocks of two servers
// of one cluster may differ by that after a failover. A claim further ahead does not show that its sender is alive: the clock
// was set back after it (or summer time ended, where the zone has it), or a wrong time was written. Without this limit its row
// would stay SENDING until the clock reaches the claim.
const claimAhead = 5 * time.Second

// Due returns a page of identities, in the order of the index that the table has (strategy), and where the next page begins:
// with the same query. Rows are never found by an offset and never above a remembered id: lower ids commit later (D10). Rows
// that appear behind the cursor meanwhile are for the next sweep. A page may be empty before the end. A row whose state cannot be used is in
// the page as unreadable, one that the server cannot show is missing; both are noted as refused, and keep no other row from the list.
//
// A mapped column that is missing is an error, even where no row is due: nothing of the table can be published or written.
//
// Where no column is mapped to CreatedAt the age of a row is unknown and Threshold does not apply: a caller that wants old rows
// only has to see a row twice.
func (s finder) Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	t, err := s.table(name)
	if err != nil {
		return nil, after, err
	}
	q.Threshold = max(q.Threshold, t.grace()) // however the sweep came about, the application has its time
	if q.Limit <= 0 {
		q.Limit = table.MaxRows
	}
	look := pageQuery{DueQuery: q}
	list := t.ranges(look)
	if after.Done() || after.Range >= len(list) {
		return nil, table.Cursor{AtEnd: true}, nil
	}
	if after == (table.Cursor{}) {
		if err := s.hasColumns(ctx, t); err != nil {
			return nil, after, err
		}
	}
	page, next, err := s.page(ctx, t, list, after, look)
	if t.ForgetIndex(err) {
		page, next, err = s.page(ctx, t, list, after, look)
	}
	if err != nil {
		return nil, after, fmt.Errorf("look for due rows of %s: %w", name, err)
	}
	return page, next, nil
}

// hasColumns asks for every mapped column of a table and for no row.
func (s finder) hasColumns(ctx context.Context, t *mapped) error {
	query := table.Text("SELECT ")
	roles := t.Roles()
	query.List(len(roles), func(i int) { query.Add(t.Column(roles[i])) })
	query.Add(" FROM ", t.Quoted(), " LIMIT 0")
	if err := query.Each(ctx, s.db, nil, nil); err != nil {
		return fmt.Errorf("look for the mapped columns of %s: %w", t.Name(), err)
	}
	return nil
}

// page reads one page. more is scanned with each row, behind what candidates reads. Where the server refuses to show one of its rows the page
// ends before that row, or, when it is the first, is empty: then the row is noted as refused, and the next page begins behind it.
func (s finder) page(ctx context.Context, t *mapped, list []table.Range, at table.Cursor, q pageQuery, more ...any) ([]outbox.Candidate, table.Cursor, error) {
	if t.Strategy() == table.ByAttempts && (!at.Attempts.Known || at.Attempts.Ended) {
		next, err := s.nextAttempts(ctx, t, list[at.Range].Status, at.Attempts)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nextStatus(at, list), nil
		} else if err != nil {
			return nil, at, err
		}
		at.Attempts = next
	}
	var last sql.NullString
	page, err := s.candidates(ctx, t, t.due(list[at.Range], at, q), append([]any{&last}, more...)...)
	switch {
	case server.Classify(err) == server.Data && q.Limit > 1:
		q.Limit /= 2
		return s.page(ctx, t, list, at, q, more...)
	case server.Classify(err) == server.Data:
		return s.passRefused(ctx, t, list, at, q, err)
	case err != nil || len(page) < q.Limit:
		return page, at.Next(list, t.Strategy() == table.ByAttempts), err
	}
	return page, at.Behind(last.String, page[len(page)-1].ID), nil
}

// passRefused moves the cursor behind the next row, which the server does not show whole, and reads its key alone.
func (s finder) passRefused(ctx context.Context, t *mapped, list []table.Range, at table.Cursor, q pageQuery, cause error) ([]outbox.Candidate, table.Cursor, error) {
	q.Limit = 1
	head := table.Text("SELECT ", t.Column(table.ID))
	query := t.dueFrom(head, list[at.Range], at, q)
	var id []byte
	var last, isFinal sql.NullString
	into := []any{&id, &last}
	if final(list[at.Range]) {
		into = append(into, &isFinal)
	}
	err := query.One(ctx, s.db, into...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, at.Next(list, t.Strategy() == table.ByAttempts), nil
	}
	if err != nil {
		return nil, at, errors.Join(cause, err)
	}
	at = at.Behind(last.String, string(t.KeyText(table.ID, id)))
	s.refused.add(RefusedRow{Identity: outbox.Identity{Table: t.Name(), ID: at.LastID}, Reason: cause.Error()})
	return nil, at, nil
}

// nextAttempts looks up the next value of the column that counts attempts; sql.ErrNoRows when the rows of the status have none.
func (s finder) nextAttempts(ctx context.Context, t *mapped, status outbox.Status, after table.AttemptCount) (table.AttemptCount, error) {
	var value sql.NullString
	err := t.AttemptsOf(table.CodeOf(t.Mapping().Codes[status]), after).One(ctx, s.db, &value)
	return table.AttemptCount{Known: true, Value: value.String}, err
}

// due is the query of one page. Behind the columns of the state it shows the time in whose order the rows come.
func (t *mapped) due(in table.Range, after table.Cursor, q pageQuery) *table.Statement {
	return t.dueFrom(t.selectState(), in, after, q)
}

// dueFrom is due with what a query begins with.
func (t *mapped) dueFrom(s *table.Statement, in table.Range, after table.Cursor, q pageQuery) *table.Statement {
	s.Add(", ", t.TimeShown(in))
	if final(in) {
		s.Add(", ")
		t.finalFor(s, in.Status, q.final)
	}
	t.FromIndex(s, table.CodeOf(t.Mapping().Codes[in.Status]), after.Attempts)
	t.inside(s, in, q)
	t.Behind(s, in, after)
	switch in.Status {
	case outbox.Pending:
		t.wanted(s, in, q)
	case outbox.Sending:
		t.claimExpired(s, q)
	}
	t.InOrder(s, in, q.Limit)
	return s
}

// inside writes the range of the range.
func (t *mapped) inside(s *table.Statement, in table.Range, q pageQuery) {
	order := t.TimeBehind()
	switch in.Part {
	case table.Untimed:
		s.Add(" AND ", t.Column(order), " IS NULL")
	case table.Aged:
		s.Add(" AND ")
		t.ago(s, table.CreatedAt, q.Threshold)
	case table.Ahead:
		s.Add(" AND ", t.Column(table.CreatedAt), " > ", t.Now(table.CreatedAt))
	case table.Timed:
		s.Add(" AND ")
		if order == table.NextRetryTime && in.Status == outbox.Pending {
			t.dueWithin(s, q.Horizon)
		} else {
			s.Add(t.Column(order), " IS NOT NULL")
		}
	}
}

// wanted writes which PENDING rows a sweep takes, as far as the range of the range does not say it.
func (t *mapped) wanted(s *table.Statement, in table.Range, q pageQuery) {
	hasDue := t.Has(table.NextRetryTime)
	byAge := q.Threshold > 0 && t.Has(table.CreatedAt) && in.Part != table.Aged && in.Part != table.Ahead
	switch {
	case hasDue && t.TimeBehind() == table.NextRetryTime && in.Part == table.Timed:
	case hasDue && t.TimeBehind() != table.NextRetryTime:
		due := t.Column(table.NextRetryTime)
		s.Add(" AND (")
		t.dueWithin(s, q.Horizon)
		s.Add(" OR ", due, " IS NULL")
		if byAge {
			s.Add(" AND ")
			t.old(s, q.Threshold)
		}
		s.Add(")")
	case byAge:
		s.Add(" AND ")
		t.old(s, q.Threshold)
	}
}

func (t *mapped) dueWithin(s *table.Statement, d time.Duration) {
	s.Add(t.Column(table.NextRetryTime), " <= ", t.Now(table.NextRetryTime), " + INTERVAL ")
	s.Micros(d)
	s.Add(" MICROSECOND")
}

// old writes that a row was made long enough ago. A time ahead of the clock says nothing about the age (an application that writes
// the time of another zone), so the row counts as old, as one without a time does. The position rule decides whether it is
// published.
func (t *mapped) old(s *table.Statement, threshold time.Duration) {
	made := t.Column(table.CreatedAt)
	s.Add("(", made, " IS NULL OR ", made, " > ", t.Now(table.CreatedAt), " OR ")
	t.ago(s, table.CreatedAt, threshold)
	s.Add(")")
}

// claimExpired writes which SENDING rows a sweep takes.
func (t *mapped) claimExpired(s *table.Statement, q pageQuery) {
	if q.ExpiredClaims <= 0 {
		return
	}
	stamp := t.Column(table.LastExecTime)
	s.Add(" AND (", stamp, " IS NULL OR ")
	t.ago(s, table.LastExecTime, q.ExpiredClaims)
	s.Add(" OR ", stamp, " > ", t.Now(table.LastExecTime), " + INTERVAL ")
	s.Micros(claimAhead)
	s.Add(" MICROSECOND)")
}

// ago writes that a time lies at least a duration back.
func (t *mapped) ago(s *table.Statement, role table.Column, d time.Duration) {
	s.Add(t.Column(role), " <= ", t.Now(role), " - INTERVAL ")
	s.Micros(d)
	s.Add(" MICROSECOND")
}
