package query

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Breakdown says what the rows that are not done have in common.
type Breakdown struct {
	Topics  []GroupCounts // most rows first
	Types   []GroupCounts // by business type, likewise; none where the table has no column for it
	Reasons []ReasonCount // most rows first, of refused rows
	// Looked is how many PENDING rows and how many FAILED ones were looked at; Sampled is that there are more.
	Looked  [2]int64
	Sampled bool
	Scan    string // not "": nothing was looked at, because this says why it would read a large table
}

// GroupCounts counts the rows of a topic, or of a business type, that are not done.
type GroupCounts struct {
	Name            string
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
	breakdownGroups  = 100
	breakdownReasons = 20
	reasonBegins     = 200 // characters in which reasons must agree
)

// Breakdown groups the first PENDING rows and the first FAILED ones, by the index on the status, by topic and by reason.
func (s counter) Breakdown(ctx context.Context, name string) (Breakdown, error) {
	return byIndex(s.tables, name, "break down", func(t *mapped) (Breakdown, error) { return s.breakdown(ctx, t) })
}

func (s counter) breakdown(ctx context.Context, t *mapped) (b Breakdown, err error) {
	if b.Scan, err = s.scans(ctx, t, Listing{State: outbox.Pending.String()}); err != nil || b.Scan != "" {
		return b, err
	}
	topics, types, reasons := groupsByName{}, groupsByName{}, map[string]int64{}
	for i, status := range []outbox.Status{outbox.Pending, outbox.Failed} {
		if status == outbox.Failed && !t.Fails() {
			break
		}
		err := s.eachGroup(ctx, t.groups(status), func(g *group) {
			b.Looked[i] += g.rows
			failed := status == outbox.Failed || g.tried && !t.Fails()
			topics.add(t.Topic(g.topic), g, failed)
			if t.Has(table.BizType) {
				types.add(string(t.KeyText(table.BizType, g.kind)), g, failed)
			}
			if g.reason != "" {
				reasons[g.reason] += g.rows
			}
		})
		if err != nil {
			return b, err
		}
		b.Sampled = b.Sampled || b.Looked[i] >= breakdownRows
	}
	b.Topics, b.Types = topics.sorted(), types.sorted()
	for reason, n := range reasons {
		b.Reasons = append(b.Reasons, ReasonCount{reason, n})
	}
	slices.SortFunc(b.Reasons, func(x, y ReasonCount) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Reason, y.Reason))
	})
	b.Reasons = b.Reasons[:min(len(b.Reasons), breakdownReasons)]
	return b, nil
}

// groupsByName sums up groups by their name.
type groupsByName map[string]*GroupCounts

func (n groupsByName) add(name string, g *group, failed bool) {
	one := n[name]
	if one == nil {
		one = &GroupCounts{Name: name}
		n[name] = one
	}
	if failed {
		one.Failed += g.rows
	} else {
		one.Pending += g.rows
	}
	one.Oldest = max(one.Oldest, time.Duration(g.micros)*time.Microsecond)
}

// sorted are the groups with the most rows.
func (n groupsByName) sorted() (list []GroupCounts) {
	for _, one := range n {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(x, y GroupCounts) int {
		return cmp.Or(cmp.Compare(y.Failed, x.Failed), cmp.Compare(y.Pending, x.Pending), cmp.Compare(x.Name, y.Name))
	})
	return list[:min(len(list), breakdownGroups)]
}

// groups is the query of one status: it reads at most breakdownRows rows, whatever the table holds.
func (t *mapped) groups(status outbox.Status) *table.Statement {
	topic, kind, reason, age := "NULL", "NULL", "''", "NULL"
	if t.Has(table.BizType) {
		kind = t.Column(table.BizType)
	}
	if t.Has(table.Topic) {
		topic = t.Column(table.Topic)
	}
	if t.Has(table.FailReason) {
		reason = "COALESCE(LEFT(" + t.Column(table.FailReason) + ", " + strconv.Itoa(reasonBegins) + "), '')"
	}
	if t.Has(table.CreatedAt) {
		age = t.Age(table.CreatedAt)
	}
	s := table.Text("SELECT topic, kind, reason, tried, COUNT(*), COALESCE(MAX(age), 0) FROM (SELECT ", topic, " AS topic, ", kind, " AS kind, ", reason, " AS reason, ",
		t.RetryCount(), " > 0 AS tried, ", age, " AS age FROM ", t.Quoted())
	t.ForceIndex(s)
	s.Add(" WHERE ", t.Column(table.StatusCode), " = ")
	t.Code(s, status)
	s.Limit(breakdownRows)
	s.Add(") AS looked GROUP BY topic, kind, reason, tried")
	return s
}

// group is rows that have topic, type and reason in common. The bytes are valid until the next one.
type group struct {
	topic, kind  sql.RawBytes
	reason       string
	rows, micros int64
	tried        bool
}

func (s counter) eachGroup(ctx context.Context, query *table.Statement, each func(*group)) error {
	var g group
	return query.Each(ctx, s.db, []any{&g.topic, &g.kind, &g.reason, &g.tried, &g.rows, &g.micros}, func() error {
		each(&g)
		return nil
	})
}
