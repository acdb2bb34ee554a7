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

// firstSeen is a PENDING row with a creation time ahead of the clock. Its age is unknown, so it counts from when it was first
// seen.
type firstSeen struct {
	id string
	at time.Time
}

// askAges asks how old, or how far ahead, the times of rows are. The function that it returns takes the answers.
func (s *Store) askAges(t *Table, c *Counts, all *answers) func() {
	var pending, sending, retry sql.NullInt64
	var ahead sql.NullString
	if t.claims() {
		claims := t.sample(t.age(LastExecTime)+" AS age", t.whereStatus(outbox.Sending), "")
		claims.limit(sampleSize)
		all.ask(claims.inside("MAX(ABS(age))"), &sending)
	}
	if t.has(NextRetryTime) {
		s.askLongestRetry(t, all, &retry)
	}
	s.askOldestPending(t, all, &pending, &ahead)
	micros := func(n sql.NullInt64) time.Duration { return max(0, time.Duration(n.Int64)*time.Microsecond) }
	return func() {
		c.OldestPending = max(micros(pending), s.since(t, ahead.String, c.At))
		c.OldestSending = micros(sending)
		if c.LongestRetry = micros(retry); !t.has(NextRetryTime) {
			_, c.LongestRetry = s.waits.Waiting(t.name, c.At)
		}
	}
}

// askLongestRetry asks for the wait of the row that was tried and is due last.
func (s *Store) askLongestRetry(t *Table, all *answers, into *sql.NullInt64) {
	wait := "-" + t.age(NextRetryTime)
	if t.has(RetryCount) {
		wait = "IF(" + t.retryCount() + " > 0, " + wait + ", 0)"
	}
	retries := t.samplePending(wait+" AS wait", t.whereDelayed(), " ORDER BY "+t.column(NextRetryTime)+" DESC, "+t.column(ID)+" DESC", s.maxCount)
	retries.limit(sampleSize)
	all.ask(retries.inside("MAX(wait)"), into)
}

// age is how long ago the time of a column was, in microseconds; negative when it is to come.
func (t *Table) age(role Column) string {
	return "TIMESTAMPDIFF(MICROSECOND, " + t.column(role) + ", " + t.now(role) + ")"
}

// askOldestPending asks for the greatest age among the first rows that are due, and for the first that was made ahead of the clock.
func (s *Store) askOldestPending(t *Table, all *answers, oldest *sql.NullInt64, first *sql.NullString) {
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
	all.askOver(query, "MAX(age), MIN(ahead)", oldest, first)
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

// CheckClock reports whether the application writes created_at ahead of the database's clock: the column then holds the time of
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
