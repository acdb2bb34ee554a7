package query

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

// firstSeen is a PENDING row with a creation time ahead of the clock. Its age is unknown, so it counts from when it was first
// seen.
type firstSeen struct {
	id string
	at time.Time
}

// askAges asks how old, or how far ahead, the times of rows are. The function that it returns takes the answers.
func (s counter) askAges(t *mapped, c *Counts, all *answers) func() {
	var pending, sending, retry sql.NullInt64
	var ahead sql.NullString
	if t.Claims() {
		claims := t.sample(t.Age(table.LastExecTime)+" AS age", t.whereStatus(outbox.Sending), "")
		claims.Limit(sampleSize)
		all.ask(claims.Inside("MAX(ABS(age))"), &sending)
	}
	if t.Has(table.NextRetryTime) {
		s.askLongestRetry(t, all, &retry)
	}
	s.askOldestPending(t, all, &pending, &ahead)
	micros := func(n sql.NullInt64) time.Duration { return max(0, time.Duration(n.Int64)*time.Microsecond) }
	return func() {
		c.OldestPending = max(micros(pending), s.since(t, ahead.String, c.At))
		c.OldestSending = micros(sending)
		if c.LongestRetry = micros(retry); !t.Has(table.NextRetryTime) {
			_, c.LongestRetry = s.waits.Waiting(t.Name(), c.At)
		}
	}
}

// askLongestRetry asks for the wait of the row that was tried and is due last.
func (s counter) askLongestRetry(t *mapped, all *answers, into *sql.NullInt64) {
	wait := "-" + t.Age(table.NextRetryTime)
	if t.Has(table.RetryCount) {
		wait = "IF(" + t.RetryCount() + " > 0, " + wait + ", 0)"
	}
	retries := t.samplePending(wait+" AS wait", t.whereDelayed(), " ORDER BY "+t.Column(table.NextRetryTime)+" DESC, "+t.Column(table.ID)+" DESC", s.maxCount)
	retries.Limit(sampleSize)
	all.ask(retries.Inside("MAX(wait)"), into)
}

// askOldestPending asks for the greatest age among the first rows that are due, and for the first that was made ahead of the clock.
func (s counter) askOldestPending(t *mapped, all *answers, oldest *sql.NullInt64, first *sql.NullString) {
	age, ahead, order := "CAST(NULL AS SIGNED)", "FALSE", ""
	if t.Has(table.CreatedAt) {
		ahead = t.Column(table.CreatedAt) + " > " + t.Now(table.CreatedAt)
		age = "IF(" + ahead + ", NULL, " + t.Age(table.CreatedAt) + ")"
	}
	switch {
	case t.Has(table.NextRetryTime) && t.Has(table.CreatedAt):
		// A first attempt that was due later than it was made is as old as its due time; where one of the two is not known, the
		// other one says it.
		age = fmt.Sprintf("IF(%s = 0 AND %s IS NOT NULL, LEAST(COALESCE(%s, %s), %[4]s), COALESCE(%[3]s, %[4]s))",
			t.RetryCount(), t.Column(table.NextRetryTime), age, t.Age(table.NextRetryTime))
	case t.Has(table.NextRetryTime):
		age = t.Age(table.NextRetryTime)
	}
	switch {
	case t.Has(table.NextRetryTime):
		order = t.Column(table.NextRetryTime) + ", "
	case t.Strategy() == table.ByCreated:
		order = t.Column(table.CreatedAt) + ", "
	}
	query := t.samplePending(age+" AS age, IF("+ahead+", "+t.Column(table.ID)+", NULL) AS ahead", t.whereDue(), " ORDER BY "+order+t.Column(table.ID), s.maxCount)
	query.Limit(sampleSize)
	all.askOver(query, "MAX(age), MIN(ahead)", oldest, first)
}

// since is how long the first row that was made ahead of the clock has been seen to wait.
func (s counter) since(t *mapped, id string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		delete(s.ahead, t.Name())
		return 0
	}
	if s.ahead[t.Name()].id != id {
		s.ahead[t.Name()] = firstSeen{id, now}
	}
	return now.Sub(s.ahead[t.Name()].at)
}

// newest returns the newest row, by primary key or the time that the index has behind the status, and how far ahead of the database's clock it was made; 0 when that is no more
// than clocks differ.
func (t *mapped) newest(ctx context.Context, db *sql.DB) (id string, ahead time.Duration, err error) {
	if !t.Has(table.CreatedAt) {
		return "", 0, nil
	}
	for _, query := range t.newestFirst() {
		var key []byte
		var micros sql.NullInt64
		query.Add(" LIMIT 1")
		switch err := query.One(ctx, db, &key, &micros); {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return "", 0, err
		case id == "" || time.Duration(micros.Int64)*time.Microsecond > ahead:
			id, ahead = string(t.KeyText(table.ID, key)), time.Duration(micros.Int64)*time.Microsecond
		}
	}
	if ahead <= table.CreatedAhead {
		ahead = 0
	}
	return id, ahead, nil
}

// newestFirst are queries of keys and of how far ahead of the clock the rows were made. A key that is no number does not say which
// row is newer; without an index on the time nothing does.
func (t *mapped) newestFirst() []*table.Statement {
	columns := t.Column(table.ID) + ", " + t.Ahead(table.CreatedAt)
	switch {
	case t.Type(table.ID).Kind() == table.KindInteger:
		s := table.Text("SELECT ", columns, " FROM ", t.Quoted(), " ORDER BY ", t.Column(table.ID), " DESC")
		return []*table.Statement{s}
	case t.Strategy() == table.ByCreated:
		order := " ORDER BY " + t.Column(table.CreatedAt) + " DESC, " + t.Column(table.ID) + " DESC"
		return []*table.Statement{t.sample(columns, t.whereStatus(outbox.Pending), order), t.sample(columns, t.whereStatus(outbox.Sent), order)}
	}
	return nil
}

// CheckClock reports whether the application writes created_at ahead of the database's clock: the column then holds the time of
// another zone, and the age of rows is not known.
func CheckClock(ctx context.Context, db *sql.DB, of *table.Table) (server.Finding, error) {
	t := &mapped{of}
	f := server.Finding{Severity: server.OK, Subject: t.Name() + "." + t.ColumnName(table.CreatedAt)}
	id, ahead, err := t.newest(ctx, db)
	switch {
	case err != nil:
		return f, fmt.Errorf("look at the newest row of %s: %w", t.Name(), err)
	case !t.Has(table.CreatedAt):
		f.Subject, f.What = t.Name(), "no column says when a row was made"
	case ahead == 0:
		f.What = "the newest row was not made ahead of the database's clock"
	default:
		f.Severity = server.Warning
		f.What = fmt.Sprintf("the newest row (%s %s) was made %v ahead of the database's clock: the age of rows is not known, "+
			"fallback.threshold and grace do not hold them back and the alert on old rows comes late", t.ColumnName(table.ID), id, ahead.Round(time.Second))
		f.Fix = t.fixClock(ahead)
	}
	return f, nil
}

// fixClock names the time zone that the application seems to write.
func (t *mapped) fixClock(ahead time.Duration) string {
	if t.Type(table.CreatedAt).DataType == "timestamp" {
		return "let the application write the time of its session's time_zone, or leave the column to DEFAULT CURRENT_TIMESTAMP(3)"
	}
	_, offset := time.Now().In(t.Zone()).Zone()
	zone := (time.Duration(offset)*time.Second + ahead).Round(15 * time.Minute)
	sign := '+'
	if zone < 0 {
		sign, zone = '-', -zone
	}
	return fmt.Sprintf("if the application writes all its DATETIME columns in its own zone, set tables[].time_zone of %s to that zone (it looks like "+
		"\"%c%02d:%02d\"); otherwise let it write the database's time, or leave the column to DEFAULT CURRENT_TIMESTAMP(3)",
		t.Name(), sign, int(zone.Hours()), int(zone.Minutes())%60)
}
