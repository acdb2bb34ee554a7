package table

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// MaxCount is where counting stops, so that a sample costs a bounded part of the index.
const MaxCount = 100_000

// oldestSample is how many due rows are looked at for the oldest one.
const oldestSample = 1000

// Counts is a sample of one table.
type Counts struct {
	Table string
	// Rows by status. Pending, Sending and Failed are exact up to MaxCount; Sent is the server's estimate of the table's
	// rows less the others, because counting it would read the whole index. Held is not counted.
	Rows map[outbox.Status]int64
	// OldestPending is the age of the oldest among the first PENDING rows that are due: since it was made or, for a first
	// attempt, became due. 0 when there is none.
	OldestPending time.Duration
}

// Counts samples every table. It is cheap by the status index, and meant to be called every few seconds or slower. It
// also reads the offset of the server's default time zone again, which daylight saving time changes.
func (s *Store) Counts(ctx context.Context) ([]Counts, error) {
	name, offset, err := server.Zone(ctx, s.db)
	if err != nil {
		return nil, fmt.Errorf("read the server's time zone: %w", err)
	}
	var out []Counts
	for _, t := range s.tables {
		if t.mapping.TimeZone == "" {
			t.zone.Store(time.FixedZone(name, int(offset/time.Second)))
		}
		c, err := s.count(ctx, t)
		if t.forgetIndex(err) {
			c, err = s.count(ctx, t)
		}
		if err != nil {
			return nil, fmt.Errorf("count rows of %s: %w", t.name, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func (s *Store) count(ctx context.Context, t *Table) (Counts, error) {
	c := Counts{Table: t.name, Rows: map[outbox.Status]int64{}}
	var others int64
	for _, status := range []outbox.Status{outbox.Pending, outbox.Sending, outbox.Failed} {
		query := &statement{}
		query.add("SELECT COUNT(*) FROM (SELECT 1 FROM ", t.quoted)
		t.forceIndex(query)
		query.add(" WHERE ", t.column(StatusCode), " = ")
		t.code(query, status)
		query.add(" LIMIT ", strconv.Itoa(MaxCount), ") AS counted")
		var n int64
		if err := s.db.QueryRowContext(ctx, query.text.String(), query.args...).Scan(&n); err != nil {
			return c, err
		}
		c.Rows[status] = n
		others += n
	}
	var estimate sql.NullInt64
	err := s.db.QueryRowContext(ctx, "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
		t.schema, t.name[len(t.schema)+1:]).Scan(&estimate)
	if err != nil {
		return c, err
	}
	c.Rows[outbox.Sent] = max(0, estimate.Int64-others)
	c.OldestPending, err = s.oldest(ctx, t)
	return c, err
}

func (s *Store) oldest(ctx context.Context, t *Table) (time.Duration, error) {
	due := t.column(NextRetryTime)
	age := func(role Column) string {
		return "TIMESTAMPDIFF(MICROSECOND, " + t.column(role) + ", " + t.now(role) + ")"
	}
	query := &statement{}
	query.add("SELECT COALESCE(MAX(age), 0) FROM (SELECT ")
	if t.has(CreatedAt) {
		query.add("IF(", t.retryCount(), " = 0 AND ", due, " IS NOT NULL, LEAST(", age(CreatedAt), ", ", age(NextRetryTime), "), ",
			age(CreatedAt), ")")
	} else {
		query.add(age(NextRetryTime))
	}
	query.add(" AS age FROM ", t.quoted)
	t.forceIndex(query)
	query.add(" WHERE ", t.column(StatusCode), " = ")
	t.code(query, outbox.Pending)
	query.add(" AND (", due, " IS NULL OR ", due, " <= ", t.now(NextRetryTime), ") ORDER BY ", due, ", ", t.column(ID),
		" LIMIT ", strconv.Itoa(oldestSample), ") AS sample")
	var micros int64
	err := s.db.QueryRowContext(ctx, query.text.String(), query.args...).Scan(&micros)
	return max(0, time.Duration(micros)*time.Microsecond), err
}
