package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// createdAhead is how far ahead of the database's clock a row may be made that is taken for one of now: what the clocks of an
// application and of the database differ by when both are kept.
const createdAhead = time.Minute

// firstSeen is a PENDING row that was made ahead of the clock: nobody knows its age, so it counts from when it was first seen.
type firstSeen struct {
	id string
	at time.Time
}

// ages samples how old, or how far ahead, the times of rows are.
func (s *Store) ages(ctx context.Context, t *Table, c *Counts) (err error) {
	if c.OldestPending, err = s.oldestPending(ctx, t, c.At); err != nil {
		return err
	}
	if t.claims() {
		claims := t.sample(t.age(LastExecTime)+" AS age", t.whereStatus(outbox.Sending), "")
		claims.limit(sampleSize)
		if c.OldestSending, err = s.micros(ctx, claims.inside("MAX(ABS(age))")); err != nil {
			return err
		}
	}
	if c.LongestRetry, err = s.longestRetry(ctx, t, c.At); err != nil {
		return err
	}
	_, c.CreatedAhead, err = t.newest(ctx, s.db)
	return err
}

// longestRetry is the wait of the row that was tried and is due last.
func (s *Store) longestRetry(ctx context.Context, t *Table, now time.Time) (time.Duration, error) {
	if !t.has(NextRetryTime) {
		_, longest := s.waits.Waiting(t.name, now)
		return longest, nil
	}
	wait := "-" + t.age(NextRetryTime)
	if t.has(RetryCount) {
		wait = "IF(" + t.retryCount() + " > 0, " + wait + ", 0)"
	}
	retries := t.samplePending(wait+" AS wait", t.whereDelayed(), " ORDER BY "+t.column(NextRetryTime)+" DESC, "+t.column(ID)+" DESC", s.maxCount)
	retries.limit(sampleSize)
	return s.micros(ctx, retries.inside("MAX(wait)"))
}

// age is how long ago the time of a column was, in microseconds; negative when it is to come.
func (t *Table) age(role Column) string {
	return "TIMESTAMPDIFF(MICROSECOND, " + t.column(role) + ", " + t.now(role) + ")"
}

func (s *Store) micros(ctx context.Context, query *statement) (time.Duration, error) {
	var micros sql.NullInt64
	err := s.scan(ctx, query, &micros)
	return max(0, time.Duration(micros.Int64)*time.Microsecond), err
}

// oldestPending is the greatest age among the first rows that are due.
func (s *Store) oldestPending(ctx context.Context, t *Table, now time.Time) (time.Duration, error) {
	age, ahead, order := "CAST(NULL AS SIGNED)", "FALSE", ""
	if t.has(CreatedAt) {
		ahead = t.column(CreatedAt) + " > " + t.now(CreatedAt)
		age = "IF(" + ahead + ", NULL, " + t.age(CreatedAt) + ")"
	}
	switch {
	case t.has(NextRetryTime) && t.has(CreatedAt):
		// A first attempt that was due later than it was made is as old as its due time; where one of the two is not known, the
		// other one says it.
		age = fmt.Sprintf("IF(%s = 0 AND %s IS NOT NULL, LEAST(COALESCE(%s, %s), %[4]s), COALESCE(%[3]s, %[4]s))",
			t.retryCount(), t.column(NextRetryTime), age, t.age(NextRetryTime))
	case t.has(NextRetryTime):
		age = t.age(NextRetryTime)
	}
	switch {
	case t.has(NextRetryTime):
		order = t.column(NextRetryTime) + ", "
	case t.strategy == byCreated:
		order = t.column(CreatedAt) + ", "
	}
	query := t.samplePending(age+" AS age, IF("+ahead+", "+t.column(ID)+", NULL) AS ahead", t.whereDue(), " ORDER BY "+order+t.column(ID), s.maxCount)
	query.limit(sampleSize)
	var micros sql.NullInt64
	var first sql.NullString
	if err := s.scan(ctx, query.inside("MAX(age), MIN(ahead)"), &micros, &first); err != nil {
		return 0, err
	}
	return max(0, time.Duration(micros.Int64)*time.Microsecond, s.since(t, first.String, now)), nil
}

// since is how long the first row that was made ahead of the clock has been seen to wait.
func (s *Store) since(t *Table, id string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		delete(s.ahead, t.name)
		return 0
	}
	if s.ahead[t.name].id != id {
		s.ahead[t.name] = firstSeen{id, now}
	}
	return now.Sub(s.ahead[t.name].at)
}

// newest returns the newest row, by primary key or the time that the index has behind the status, and how far ahead of the database's clock it was made; 0 when that is no more
// than clocks differ.
func (t *Table) newest(ctx context.Context, db *sql.DB) (id string, ahead time.Duration, err error) {
	if !t.has(CreatedAt) {
		return "", 0, nil
	}
	for _, query := range t.newestFirst() {
		var key []byte
		var micros sql.NullInt64
		query.add(" LIMIT 1")
		switch err := db.QueryRowContext(ctx, query.text.String(), query.args...).Scan(&key, &micros); {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return "", 0, err
		case id == "" || time.Duration(micros.Int64)*time.Microsecond > ahead:
			id, ahead = string(t.keyText(ID, key)), time.Duration(micros.Int64)*time.Microsecond
		}
	}
	if ahead <= createdAhead {
		ahead = 0
	}
	return id, ahead, nil
}

// newestFirst are queries of keys and of how far ahead of the clock the rows were made. A key that is no number does not say which
// row is newer; without an index on the time nothing does.
func (t *Table) newestFirst() []*statement {
	columns := t.column(ID) + ", -" + t.age(CreatedAt)
	switch {
	case t.columns[ID].kindOf() == integer:
		s := &statement{}
		s.add("SELECT ", columns, " FROM ", t.quoted, " ORDER BY ", t.column(ID), " DESC")
		return []*statement{s}
	case t.strategy == byCreated:
		order := " ORDER BY " + t.column(CreatedAt) + " DESC, " + t.column(ID) + " DESC"
		return []*statement{t.sample(columns, t.whereStatus(outbox.Pending), order), t.sample(columns, t.whereStatus(outbox.Sent), order)}
	}
	return nil
}

// CheckClock tells whether the application writes created_at ahead of the database's clock: the column then holds the time of
// another zone, and the age of rows is not known.
func (t *Table) CheckClock(ctx context.Context, db *sql.DB) (server.Finding, error) {
	f := server.Finding{Severity: server.OK, Subject: t.name + "." + t.ColumnName(CreatedAt)}
	id, ahead, err := t.newest(ctx, db)
	switch {
	case err != nil:
		return f, fmt.Errorf("look at the newest row of %s: %w", t.name, err)
	case !t.has(CreatedAt):
		f.Subject, f.What = t.name, "no column says when a row was made"
	case ahead == 0:
		f.What = "the newest row was not made ahead of the database's clock"
	default:
		f.Severity = server.Warning
		f.What = fmt.Sprintf("the newest row (%s %s) was made %v ahead of the database's clock: the age of rows is not known, "+
			"fallback.threshold does not hold them back and the alert on old rows comes late", t.ColumnName(ID), id, ahead.Round(time.Second))
		f.Fix = t.fixClock(ahead)
	}
	return f, nil
}

// fixClock names the time zone that the application seems to write.
func (t *Table) fixClock(ahead time.Duration) string {
	if t.columns[CreatedAt].DataType == "timestamp" {
		return "let the application write the time of its session's time_zone, or leave the column to DEFAULT CURRENT_TIMESTAMP(3)"
	}
	_, offset := time.Now().In(t.zone.Load()).Zone()
	zone := (time.Duration(offset)*time.Second + ahead).Round(15 * time.Minute)
	sign := '+'
	if zone < 0 {
		sign, zone = '-', -zone
	}
	return fmt.Sprintf("if the application writes all its DATETIME columns in its own zone, set tables[].time_zone of %s to that zone (it looks like "+
		"\"%c%02d:%02d\"); otherwise let it write the database's time, or leave the column to DEFAULT CURRENT_TIMESTAMP(3)",
		t.name, sign, int(zone.Hours()), int(zone.Minutes())%60)
}
