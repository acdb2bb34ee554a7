package query

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// sampleSize is how many rows are looked at for the oldest one, and for the retry that is furthest away.
const sampleSize = 1000

// Counts is a sample of one table.
type Counts struct {
	Table string
	At    time.Time // of the sample, by this machine's clock
	// Rows by status; Kind says how exact they are. Pending are those that are due; those that are due later are Delayed.
	// Held are the rows in states that have no configured name.
	Rows map[outbox.Status]int64
	// States are rows in the consumers' states, by the name that the mapping gives them; they are not among Held.
	States map[string]int64
	// Delayed are PENDING rows that become due later, counted up to table.MaxCount: delayed messages, and retries that wait.
	Delayed int64
	// OldestPending is the age, when sampled, of the oldest among the first PENDING rows that are due: since it was made or, for
	// a first attempt, became due. 0 when there is none. The age of a row that was made ahead of the clock counts from when a
	// sample first saw it.
	OldestPending time.Duration
	// OldestSending is how far the claim of a SENDING row lies from the database's clock, in either direction, at most among
	// the first of them. 0 when there is none.
	OldestSending time.Duration
	// CreatedAhead is how far ahead of the database's clock the newest row was made; 0 when that is no more than clocks differ.
	CreatedAhead time.Duration
	// LongestRetry is how long the last of the rows has to wait that were tried before and are due later. It looks at the rows
	// that are due last.
	LongestRetry time.Duration
	pendingCut   bool // Pending and Delayed are those among the first PENDING rows only
	// SelectFailed shows an operator the newest FAILED rows.
	SelectFailed string
}

// Kind says how exact a count is.
type Kind string

// The kinds of counts.
const (
	Exact    Kind = "exact"
	AtLeast  Kind = "at_least" // counting stopped at table.MaxCount
	Estimate Kind = "estimate" // from the server's statistics of the table
)

// Kind reports how exact Rows[status] is. Sent rows are not counted, because that would read nearly the whole index.
func (c Counts) Kind(status outbox.Status) Kind {
	switch {
	case status == outbox.Sent:
		return Estimate
	case c.Rows[status] >= table.MaxCount, status == outbox.Pending && c.pendingCut:
		return AtLeast
	}
	return Exact
}

// Settle counts rows as sent that were counted as PENDING, because their status is not written yet.
func (c *Counts) Settle(rows int) {
	if c.Kind(outbox.Pending) != Exact {
		return
	}
	n := min(int64(rows), c.Rows[outbox.Pending])
	if c.Rows[outbox.Pending] -= n; c.Rows[outbox.Pending] == 0 {
		c.OldestPending = 0
	}
	c.Rows[outbox.Sent] += n
}

// StateKind reports how exact States[name] is.
func (c Counts) StateKind(name string) Kind {
	if c.States[name] >= table.MaxCount {
		return AtLeast
	}
	return Exact
}

// Counts samples every table. It is cheap by the status index, and meant to be called every few seconds or slower. It
// also reads the server's default time zone again, whose offset summer time changes. A table that cannot be counted is missing from
// the answer, and the error names it; the others are in it.
func (s counter) Counts(ctx context.Context) ([]Counts, error) {
	if err := s.followZone(ctx); err != nil {
		return nil, err
	}
	var out []Counts
	var failed []error
	for _, t := range s.bound {
		c, err := s.Count(ctx, t.Name())
		if err != nil {
			failed = append(failed, err)
			continue
		}
		out = append(out, c)
	}
	return out, errors.Join(failed...)
}

// followZone reads the server's default time zone for the tables that have no zone of their own.
func (s counter) followZone(ctx context.Context) error {
	var zone *time.Location
	for _, t := range s.bound {
		if !t.FollowsZone() {
			continue
		}
		if zone == nil {
			var err error
			if zone, err = server.Zone(ctx, s.db, t.Zone()); err != nil {
				return fmt.Errorf("read the server's time zone: %w", err)
			}
		}
		t.FollowZone(zone)
	}
	return nil
}

func (s counter) count(ctx context.Context, t *mapped) (Counts, error) {
	c := Counts{Table: t.Name(), At: time.Now(), Rows: map[outbox.Status]int64{}, States: map[string]int64{}, SelectFailed: t.selectFailed()}
	questions := t.counted(&c)
	var all answers
	counts := make([]int64, len(questions))
	for i, one := range questions {
		query := t.sample("1", one.where, "")
		if one.pending {
			query = t.samplePending("1", one.where, "", s.maxCount)
		}
		query.Limit(int(s.maxCount))
		all.ask(query.Inside("COUNT(*)"), &counts[i])
	}
	rows := s.askRows(t, &all)
	ages := s.askAges(t, &c, &all)
	if err := all.read(ctx, s.tables); err != nil {
		return c, err
	}
	others, capped := int64(0), []*table.Statement{}
	for i, one := range questions {
		if counts[i] >= s.maxCount {
			capped = append(capped, one.where)
		} else {
			others += counts[i]
		}
		one.into(counts[i])
	}
	if t.pendingMixed() && c.Rows[outbox.Pending]+c.Delayed >= s.maxCount {
		c.pendingCut = true
		capped = append(capped, t.whereStatus(outbox.Pending))
	}
	if !t.Has(table.NextRetryTime) { // they are counted among those that are due
		waiting, _ := s.waits.Waiting(t.Name(), c.At)
		c.Delayed = min(int64(waiting), c.Rows[outbox.Pending])
		c.Rows[outbox.Pending] -= c.Delayed
	}
	ages()
	var err error
	if c.Rows[outbox.Sent], err = s.shareOfSent(ctx, t, max(0, rows.Int64-others), capped); err != nil {
		return c, err
	}
	_, c.CreatedAhead, err = t.newest(ctx, s.db)
	return c, err
}

// question is one query of a sample, and where its answer goes.
type question struct {
	where   *table.Statement
	pending bool // PENDING rows, distinguished by their due time
	into    func(int64)
}

// counted lists what is counted of a table.
func (t *mapped) counted(c *Counts) []question {
	all := []question{
		{t.whereDue(), true, func(n int64) { c.Rows[outbox.Pending] = n }},
		{t.whereHeld(), false, func(n int64) { c.Rows[outbox.Held] = n }},
	}
	if t.Has(table.NextRetryTime) {
		all = append(all, question{t.whereDelayed(), true, func(n int64) { c.Delayed = n }})
	}
	for _, status := range []outbox.Status{outbox.Sending, outbox.Failed} {
		c.Rows[status] = 0
		if code := t.Mapping().Codes[status]; code != "" {
			all = append(all, question{t.whereCode(code), false, func(n int64) { c.Rows[status] = n }})
		}
	}
	for name, code := range t.Mapping().States {
		all = append(all, question{t.whereCode(code), false, func(n int64) { c.States[name] = n }})
	}
	return all
}

// askRows asks for the server's estimate of the table's rows.
func (s counter) askRows(t *mapped, all *answers) *sql.NullInt64 {
	var rows sql.NullInt64
	query := table.Text("SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = ")
	query.Arg(t.Schema())
	query.Add(" AND TABLE_NAME = ")
	query.Arg(t.Bare())
	all.ask(query, &rows)
	return &rows
}

// shareOfSent is how many of the rows that were not counted are sent. What could not be counted to its end shares them with the sent rows
// as the server's index says.
func (s counter) shareOfSent(ctx context.Context, t *mapped, rest int64, capped []*table.Statement) (int64, error) {
	if len(capped) == 0 {
		return rest, nil
	}
	sent, err := s.estimate(ctx, t, t.whereStatus(outbox.Sent))
	if err != nil {
		return 0, err
	}
	sum := sent
	for _, where := range capped {
		n, err := s.estimate(ctx, t, where)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return int64(float64(rest) * float64(sent) / float64(max(1, sum))), nil
}

// estimate is how many rows the server expects to read. The index is not forced: with a forced one MySQL does not look into it.
func (s *tables) estimate(ctx context.Context, t *mapped, where *table.Statement) (int64, error) {
	plan, err := server.Show(ctx, s.db, "EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM "+t.Quoted()+" WHERE "+where.String(), where.Args...)
	if err != nil || len(plan) == 0 || plan[0]["rows"] == "" { // no row can match
		return 0, err
	}
	return strconv.ParseInt(plan[0]["rows"], 10, 64)
}

// sample is a query of rows by the status index.
func (t *mapped) sample(columns string, where *table.Statement, order string) *table.Statement {
	s := table.Text("SELECT ", columns, " FROM ", t.Quoted())
	t.ForceIndex(s)
	s.Add(" WHERE ", where.String(), order)
	s.Args = append(s.Args, where.Args...)
	return s
}

// pendingMixed reports whether the index does not tell PENDING rows that are due from those that are due later: a query of the
// ones would go through any number of the others.
func (t *mapped) pendingMixed() bool {
	return t.Has(table.NextRetryTime) && t.Strategy() != table.ByDue
}

// samplePending is a query of PENDING rows, distinguished by their due time. Where the index cannot do that, it looks at the first of
// them only, as many as most says.
func (t *mapped) samplePending(columns string, where *table.Statement, order string, most int64) *table.Statement {
	if !t.pendingMixed() {
		return t.sample(columns, where, order)
	}
	s := table.Text("SELECT ", columns, " FROM (SELECT ", t.Column(table.ID), ", ", t.Column(table.StatusCode))
	for _, role := range []table.Column{table.NextRetryTime, table.RetryCount, table.CreatedAt} {
		if t.Has(role) {
			s.Add(", ", t.Column(role))
		}
	}
	s.Add(" FROM ", t.Quoted())
	t.ForceIndex(s)
	s.Add(" WHERE ", t.Column(table.StatusCode), " = ")
	t.Code(s, outbox.Pending)
	s.Limit(int(most))
	s.Add(") AS pending WHERE ", where.String(), order)
	s.Args = append(s.Args, where.Args...)
	return s
}

func (t *mapped) whereStatus(status outbox.Status) *table.Statement {
	return t.whereCode(t.Mapping().Codes[status])
}

func (t *mapped) whereCode(code string) *table.Statement {
	s := table.Text(t.Column(table.StatusCode), " = ")
	t.Literal(s, code)
	return s
}

func (t *mapped) whereDue() *table.Statement {
	s := t.whereStatus(outbox.Pending)
	if t.Has(table.NextRetryTime) {
		s.Add(" AND (", t.Column(table.NextRetryTime), " IS NULL OR ", t.Column(table.NextRetryTime), " <= ", t.Now(table.NextRetryTime), ")")
	}
	return s
}

func (t *mapped) whereDelayed() *table.Statement {
	s := t.whereStatus(outbox.Pending)
	s.Add(" AND ", t.Column(table.NextRetryTime), " > ", t.Now(table.NextRetryTime))
	return s
}

// whereHeld is a few ranges of the index, between the codes that are mapped.
func (t *mapped) whereHeld() *table.Statement {
	s := table.Text("(", t.Column(table.StatusCode), " NOT IN (")
	words := t.Mapping().Words()
	s.List(len(words), func(i int) { t.Literal(s, words[i].Code) })
	s.Add(")")
	if t.Type(table.StatusCode).Nullable {
		s.Add(" OR ", t.Column(table.StatusCode), " IS NULL")
	}
	s.Add(")")
	return s
}
