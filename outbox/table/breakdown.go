package table

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Breakdown says what the rows that are not done have in common.
type Breakdown struct {
	Topics  []TopicCounts // most rows first
	Reasons []ReasonCount // most rows first, of refused rows
	// Looked is how many PENDING rows and how many FAILED ones were looked at; Sampled is that there are more.
	Looked  [2]int64
	Sampled bool
	Scan    string // not "": nothing was looked at, because this says why it would read a large table
}

// TopicCounts counts the rows of a topic that are not done.
type TopicCounts struct {
	Topic           string
	Pending, Failed int64
	Oldest          time.Duration // since the first of them was made; 0 where that is not known
}

// ReasonCount counts rows that were refused for one reason.
type ReasonCount struct {
	Reason string
	Count  int64
}

// How much a breakdown looks at and shows.
const (
	breakdownRows    = 10_000 // of each status
	breakdownTopics  = 100
	breakdownReasons = 20
	reasonBegins     = 200 // characters in which reasons must agree
)

// Breakdown groups the first PENDING rows and the first FAILED ones, by the index on the status, by topic and by reason.
func (s *Store) Breakdown(ctx context.Context, table string) (Breakdown, error) {
	return byIndex(s, table, "break down", func(t *Table) (Breakdown, error) { return s.breakdown(ctx, t) })
}

func (s *Store) breakdown(ctx context.Context, t *Table) (b Breakdown, err error) {
	if b.Scan, err = s.scans(ctx, t, Listing{State: outbox.Pending.String()}); err != nil || b.Scan != "" {
		return b, err
	}
	topics, reasons := map[string]*TopicCounts{}, map[string]int64{}
	for i, status := range []outbox.Status{outbox.Pending, outbox.Failed} {
		if status == outbox.Failed && !t.fails() {
			break
		}
		err := s.eachGroup(ctx, t.groups(status), func(value sql.RawBytes, reason string, rows, micros int64, tried bool) {
			b.Looked[i] += rows
			name := t.Topic(value)
			one := topics[name]
			if one == nil {
				one = &TopicCounts{Topic: name}
				topics[name] = one
			}
			if failed := status == outbox.Failed || tried && !t.fails(); failed {
				one.Failed += rows
			} else {
				one.Pending += rows
			}
			one.Oldest = max(one.Oldest, time.Duration(micros)*time.Microsecond)
			if reason != "" {
				reasons[reason] += rows
			}
		})
		if err != nil {
			return b, err
		}
		b.Sampled = b.Sampled || b.Looked[i] >= breakdownRows
	}
	for _, one := range topics {
		b.Topics = append(b.Topics, *one)
	}
	for reason, n := range reasons {
		b.Reasons = append(b.Reasons, ReasonCount{reason, n})
	}
	slices.SortFunc(b.Topics, func(x, y TopicCounts) int {
		return cmp.Or(cmp.Compare(y.Failed, x.Failed), cmp.Compare(y.Pending, x.Pending), cmp.Compare(x.Topic, y.Topic))
	})
	slices.SortFunc(b.Reasons, func(x, y ReasonCount) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Reason, y.Reason))
	})
	b.Topics, b.Reasons = b.Topics[:min(len(b.Topics), breakdownTopics)], b.Reasons[:min(len(b.Reasons), breakdownReasons)]
	return b, nil
}

// groups is the query of one status: it reads at most breakdownRows rows, whatever the table holds.
func (t *Table) groups(status outbox.Status) *statement {
	topic, reason, age := "NULL", "''", "NULL"
	if t.has(Topic) {
		topic = t.column(Topic)
	}
	if t.has(FailReason) {
		reason = "COALESCE(LEFT(" + t.column(FailReason) + ", " + strconv.Itoa(reasonBegins) + "), '')"
	}
	if t.has(CreatedAt) {
		age = t.age(CreatedAt)
	}
	s := &statement{}
	s.add("SELECT topic, reason, tried, COUNT(*), COALESCE(MAX(age), 0) FROM (SELECT ", topic, " AS topic, ", reason, " AS reason, ",
		t.retryCount(), " > 0 AS tried, ", age, " AS age FROM ", t.quoted)
	t.forceIndex(s)
	s.add(" WHERE ", t.column(StatusCode), " = ")
	t.code(s, status)
	s.limit(breakdownRows)
	s.add(") AS looked GROUP BY topic, reason, tried")
	return s
}

func (s *Store) eachGroup(ctx context.Context, query *statement, each func(topic sql.RawBytes, reason string, rows, micros int64, tried bool)) (err error) {
	rows, err := s.db.QueryContext(ctx, query.text.String(), query.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var topic sql.RawBytes
		var reason string
		var count, micros int64
		var tried bool
		if err := rows.Scan(&topic, &reason, &tried, &count, &micros); err != nil {
			return err
		}
		each(topic, reason, count, micros, tried)
	}
	return rows.Err()
}
