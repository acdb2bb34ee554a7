package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// DueQuery says which rows a sweep looks for. All times are compared by the database's clock.
type DueQuery struct {
	Threshold     time.Duration // PENDING rows without a due time: at least this old, or made ahead of the clock
	Horizon       time.Duration // PENDING rows with a due time: due within this from now; those not due yet are Waiting
	ExpiredClaims time.Duration // SENDING rows: claimed at least this long ago, ahead of the clock, or at no time; 0 takes every one
	Limit         int           // rows of one page; 0 means 500

	final time.Duration // of FinalQuery
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
func (s *Store) Due(ctx context.Context, table string, after Cursor, q DueQuery) ([]outbox.Candidate, Cursor, error) {
	t, err := s.table(table)
	if err != nil {
		return nil, after, err
	}
	q.Threshold = max(q.Threshold, t.grace()) // however the sweep came about, the application has its time
	if q.Limit <= 0 {
		q.Limit = maxRows
	}
	list := t.stretches(q)
	if after.Done() || after.at >= len(list) {
		return nil, Cursor{done: true}, nil
	}
	if after == (Cursor{}) {
		if err := s.hasColumns(ctx, t); err != nil {
			return nil, after, err
		}
	}
	page, next, err := s.page(ctx, t, list, after, q)
	if t.forgetIndex(err) {
		page, next, err = s.page(ctx, t, list, after, q)
	}
	if err != nil {
		return nil, after, fmt.Errorf("look for due rows of %s: %w", table, err)
	}
	return page, next, nil
}

// hasColumns asks for every mapped column of a table and for no row.
func (s *Store) hasColumns(ctx context.Context, t *Table) error {
	query := &statement{}
	query.add("SELECT ")
	n := 0
	for role := range columnCount {
		if !t.has(role) {
			continue
		}
		if n++; n > 1 {
			query.add(", ")
		}
		query.add(t.column(role))
	}
	query.add(" FROM ", t.quoted, " LIMIT 0")
	rows, err := s.db.QueryContext(ctx, query.text.String())
	if err != nil {
		return fmt.Errorf("look for the mapped columns of %s: %w", t.name, err)
	}
	return errors.Join(rows.Err(), rows.Close())
}

// page reads one page. more is scanned with each row, behind what candidates reads. Where the server refuses to show one of its rows the page
// ends before that row, or, when it is the first, is empty: then the row is noted as refused, and the next page begins behind it.
func (s *Store) page(ctx context.Context, t *Table, list []stretch, at Cursor, q DueQuery, more ...any) ([]outbox.Candidate, Cursor, error) {
	if t.strategy == byAttempts && (!at.attempts.known || at.attempts.ended) {
		next, err := s.nextAttempts(ctx, t, list[at.at].status, at.attempts)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, at.nextStatus(list), nil
		} else if err != nil {
			return nil, at, err
		}
		at.attempts = next
	}
	var last sql.NullString
	page, err := s.candidates(ctx, t, t.due(list[at.at], at, q), append([]any{&last}, more...)...)
	switch {
	case server.Classify(err) == server.Data && q.Limit > 1:
		q.Limit /= 2
		return s.page(ctx, t, list, at, q, more...)
	case server.Classify(err) == server.Data:
		return s.passRefused(ctx, t, list, at, q, err)
	case err != nil || len(page) < q.Limit:
		return page, at.next(list, t.strategy == byAttempts), err
	}
	at.time, at.id = last.String, page[len(page)-1].ID
	at.empty = at.id == ""
	return page, at, nil
}

// passRefused moves the cursor behind the next row, which the server does not show whole, and reads its key alone.
func (s *Store) passRefused(ctx context.Context, t *Table, list []stretch, at Cursor, q DueQuery, cause error) ([]outbox.Candidate, Cursor, error) {
	q.Limit = 1
	head := &statement{}
	head.add("SELECT ", t.column(ID))
	query := t.dueFrom(head, list[at.at], at, q)
	var id []byte
	var last, final sql.NullString
	into := []any{&id, &last}
	if list[at.at].final() {
		into = append(into, &final)
	}
	err := s.scan(ctx, query, into...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, at.next(list, t.strategy == byAttempts), nil
	}
	if err != nil {
		return nil, at, errors.Join(cause, err)
	}
	at.time, at.id = last.String, string(t.keyText(ID, id))
	at.empty = at.id == ""
	s.refused.add(RefusedRow{Identity: outbox.Identity{Table: t.name, ID: at.id}, Reason: cause.Error()})
	return nil, at, nil
}

// forgetIndex reports whether a query failed because the index it forced is gone; from then on the server chooses.
func (t *Table) forgetIndex(err error) bool {
	const noSuchKey = 1176 // KEY_DOES_NOT_EXITS
	if server.Code(err) != noSuchKey {
		return false
	}
	t.sweepIndex.Store(nil)
	return true
}

// byIndex asks a table, and once more when the index that was forced is gone; does says what was asked.
func byIndex[T any](s *Store, name, does string, ask func(*Table) (T, error)) (answer T, err error) {
	t, err := s.table(name)
	if err != nil {
		return answer, err
	}
	answer, err = ask(t)
	if t.forgetIndex(err) {
		answer, err = ask(t)
	}
	if err != nil {
		err = fmt.Errorf("%s rows of %s: %w", does, name, err)
	}
	return answer, err
}

func (t *Table) forceIndex(s *statement) {
	if index := t.sweepIndex.Load(); index != nil {
		s.add(" FORCE INDEX (", quote(*index), ")")
	}
}

// nextAttempts looks up the next value of the column that counts attempts; sql.ErrNoRows when the rows of the status have none.
func (s *Store) nextAttempts(ctx context.Context, t *Table, status outbox.Status, after attemptCount) (attemptCount, error) {
	return s.attemptsAfter(ctx, t.attemptsBehind(status, after))
}

func (s *Store) attemptsAfter(ctx context.Context, query *statement) (attemptCount, error) {
	var value sql.NullString
	err := s.db.QueryRowContext(ctx, query.text.String(), query.args...).Scan(&value)
	return attemptCount{known: true, value: value.String}, err
}

func (t *Table) attemptsBehind(status outbox.Status, after attemptCount) *statement {
	return t.attemptsOf(codeOf(t.mapping.Codes[status]), after)
}

// attemptsOf looks among the rows with one code.
func (t *Table) attemptsOf(code codeText, after attemptCount) *statement {
	count := t.column(RetryCount)
	s := &statement{}
	s.add("SELECT ", count, " FROM ", t.quoted)
	t.forceIndex(s)
	s.add(" WHERE ")
	t.hasCode(s, code)
	switch {
	case !after.known:
	case after.value == "":
		s.add(" AND ", count, " IS NOT NULL")
	default:
		s.add(" AND ", count, " > ", after.value)
	}
	s.add(" ORDER BY ", count, " LIMIT 1")
	return s
}

// due is the query of one page. Behind the columns of the state it shows the time in whose order the rows come.
func (t *Table) due(in stretch, after Cursor, q DueQuery) *statement {
	return t.dueFrom(t.selectState(), in, after, q)
}

// dueFrom is due with what a query begins with.
func (t *Table) dueFrom(s *statement, in stretch, after Cursor, q DueQuery) *statement {
	order := t.timeBehind()
	if in.part == whole || in.part == untimed {
		s.add(", NULL")
	} else {
		s.add(", CAST(", t.column(order), " AS CHAR)")
	}
	if in.final() {
		s.add(", ")
		t.finalFor(s, in.status, q.final)
	}
	s.add(" FROM ", t.quoted)
	t.forceIndex(s)
	s.add(" WHERE ", t.column(StatusCode), " = ")
	t.code(s, in.status)
	switch {
	case t.strategy == byAttempts && after.attempts.value == "":
		s.add(" AND ", t.column(RetryCount), " IS NULL")
	case t.strategy == byAttempts:
		s.add(" AND ", t.column(RetryCount), " = ", after.attempts.value)
	}
	t.inside(s, in, q)
	t.behind(s, in, after)
	switch in.status {
	case outbox.Pending:
		t.wanted(s, in, q)
	case outbox.Sending:
		t.claimExpired(s, q)
	}
	s.add(" ORDER BY ")
	if in.part != whole && in.part != untimed {
		s.add(t.column(order), ", ")
	}
	s.add(t.column(ID), " LIMIT ", strconv.Itoa(q.Limit))
	return s
}

// inside writes the range of the stretch.
func (t *Table) inside(s *statement, in stretch, q DueQuery) {
	order := t.timeBehind()
	switch in.part {
	case untimed:
		s.add(" AND ", t.column(order), " IS NULL")
	case aged:
		s.add(" AND ")
		t.ago(s, CreatedAt, q.Threshold)
	case ahead:
		s.add(" AND ", t.column(CreatedAt), " > ", t.now(CreatedAt))
	case timed:
		s.add(" AND ")
		if order == NextRetryTime && in.status == outbox.Pending {
			t.dueWithin(s, q.Horizon)
		} else {
			s.add(t.column(order), " IS NOT NULL")
		}
	}
}

// behind writes the keyset condition. A comparison of rows would say it shorter, but no server makes a range of it.
func (t *Table) behind(s *statement, in stretch, after Cursor) {
	id := t.column(ID)
	switch {
	case !after.begun():
	case in.part == whole || in.part == untimed:
		s.add(" AND ", id, " > ")
		t.id(s, after.id)
	default:
		time := t.column(t.timeBehind())
		s.add(" AND (", time, " > ")
		s.string(after.time)
		s.add(" OR ", time, " = ")
		s.string(after.time)
		s.add(" AND ", id, " > ")
		t.id(s, after.id)
		s.add(")")
	}
}

// wanted writes which PENDING rows a sweep takes, as far as the range of the stretch does not say it.
func (t *Table) wanted(s *statement, in stretch, q DueQuery) {
	hasDue := t.has(NextRetryTime)
	byAge := q.Threshold > 0 && t.has(CreatedAt) && in.part != aged && in.part != ahead
	switch {
	case hasDue && t.timeBehind() == NextRetryTime && in.part == timed:
	case hasDue && t.timeBehind() != NextRetryTime:
		due := t.column(NextRetryTime)
		s.add(" AND (")
		t.dueWithin(s, q.Horizon)
		s.add(" OR ", due, " IS NULL")
		if byAge {
			s.add(" AND ")
			t.old(s, q.Threshold)
		}
		s.add(")")
	case byAge:
		s.add(" AND ")
		t.old(s, q.Threshold)
	}
}

func (t *Table) dueWithin(s *statement, d time.Duration) {
	s.add(t.column(NextRetryTime), " <= ", t.now(NextRetryTime), " + INTERVAL ")
	s.micros(d)
	s.add(" MICROSECOND")
}

// old writes that a row was made long enough ago. A time ahead of the clock says nothing about the age (an application that writes
// the time of another zone), so the row counts as old, as one without a time does. The position rule decides whether it is
// published.
func (t *Table) old(s *statement, threshold time.Duration) {
	made := t.column(CreatedAt)
	s.add("(", made, " IS NULL OR ", made, " > ", t.now(CreatedAt), " OR ")
	t.ago(s, CreatedAt, threshold)
	s.add(")")
}

// claimExpired writes which SENDING rows a sweep takes.
func (t *Table) claimExpired(s *statement, q DueQuery) {
	if q.ExpiredClaims <= 0 {
		return
	}
	stamp := t.column(LastExecTime)
	s.add(" AND (", stamp, " IS NULL OR ")
	t.ago(s, LastExecTime, q.ExpiredClaims)
	s.add(" OR ", stamp, " > ", t.now(LastExecTime), " + INTERVAL ")
	s.micros(claimAhead)
	s.add(" MICROSECOND)")
}

// ago writes that a time lies at least so long back.
func (t *Table) ago(s *statement, role Column, d time.Duration) {
	s.add(t.column(role), " <= ", t.now(role), " - INTERVAL ")
	s.micros(d)
	s.add(" MICROSECOND")
}
