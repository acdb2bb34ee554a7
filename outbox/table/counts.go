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

// MaxCount is where counting stops, so that a sample costs a bounded part of the index.
const MaxCount = 100_000

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
	// Delayed are PENDING rows that become due later, counted up to MaxCount: delayed messages, and retries that wait.
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
	AtLeast  Kind = "at_least" // counting stopped at MaxCount
	Estimate Kind = "estimate" // from the server's statistics of the table
)

// Kind reports how exact Rows[status] is. Sent rows are not counted, because that would read nearly the whole index.
func (c Counts) Kind(status outbox.Status) Kind {
	switch {
	case status == outbox.Sent:
		return Estimate
	case c.Rows[status] >= MaxCount, status == outbox.Pending && c.pendingCut:
		return AtLeast
	}
	return Exact
}

// StateKind reports how exact States[name] is.
func (c Counts) StateKind(name string) Kind {
	if c.States[name] >= MaxCount {
		return AtLeast
	}
	return Exact
}

// Counts samples every table. It is cheap by the status index, and meant to be called every few seconds or slower. It
// also reads the offset of the server's default time zone again, which daylight saving time changes. A table that cannot be counted is missing from
// the answer, and the error names it; the others are in it.
func (s *Store) Counts(ctx context.Context) ([]Counts, error) {
	name, offset, err := server.Zone(ctx, s.db)
	if err != nil {
		return nil, fmt.Errorf("read the server's time zone: %w", err)
	}
	var out []Counts
	var failed []error
	for _, t := range s.tables {
		if t.mapping.TimeZone == "" {
			t.zone.Store(time.FixedZone(name, int(offset/time.Second)))
		}
		c, err := s.count(ctx, t)
		if t.forgetIndex(err) {
			c, err = s.count(ctx, t)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("count rows of %s: %w", t.name, err))
			continue
		}
		out = append(out, c)
	}
	return out, errors.Join(failed...)
}

func (s *Store) count(ctx context.Context, t *Table) (Counts, error) {
	c := Counts{Table: t.name, At: time.Now(), Rows: map[outbox.Status]int64{}, States: map[string]int64{}, SelectFailed: t.selectFailed()}
	questions := t.counted(&c)
	var all answers
	counts := make([]int64, len(questions))
	for i, one := range questions {
		query := t.sample("1", one.where, "")
		if one.pending {
			query = t.samplePending("1", one.where, "", s.maxCount)
		}
		query.limit(int(s.maxCount))
		all.ask(query.inside("COUNT(*)"), &counts[i])
	}
	rows := s.askRows(t, &all)
	ages := s.askAges(t, &c, &all)
	if err := all.read(ctx, s); err != nil {
		return c, err
	}
	others, capped := int64(0), []*statement{}
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
	if !t.has(NextRetryTime) { // they are counted among those that are due
		waiting, _ := s.waits.Waiting(t.name, c.At)
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
	where   *statement
	pending bool // PENDING rows, told apart by their due time
	into    func(int64)
}

// counted lists what is counted of a table.
func (t *Table) counted(c *Counts) []question {
	all := []question{
		{t.whereDue(), true, func(n int64) { c.Rows[outbox.Pending] = n }},
		{t.whereHeld(), false, func(n int64) { c.Rows[outbox.Held] = n }},
	}
	if t.has(NextRetryTime) {
		all = append(all, question{t.whereDelayed(), true, func(n int64) { c.Delayed = n }})
	}
	for _, status := range []outbox.Status{outbox.Sending, outbox.Failed} {
		c.Rows[status] = 0
		if code := t.mapping.Codes[status]; code != "" {
			all = append(all, question{t.whereCode(code), false, func(n int64) { c.Rows[status] = n }})
		}
	}
	for name, code := range t.mapping.States {
		all = append(all, question{t.whereCode(code), false, func(n int64) { c.States[name] = n }})
	}
	return all
}

// askRows asks for the server's estimate of the table's rows.
func (s *Store) askRows(t *Table, all *answers) *sql.NullInt64 {
	var rows sql.NullInt64
	query := &statement{}
	query.add("SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = ")
	query.string(t.schema)
	query.add(" AND TABLE_NAME = ")
	query.string(t.name[len(t.schema)+1:])
	all.ask(query, &rows)
	return &rows
}

// shareOfSent is how many of the rows that were not counted are sent. What could not be counted to its end shares them with the sent rows
// as the server's index says.
func (s *Store) shareOfSent(ctx context.Context, t *Table, rest int64, capped []*statement) (int64, error) {
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
func (s *Store) estimate(ctx context.Context, t *Table, where *statement) (int64, error) {
	plan, err := server.Show(ctx, s.db, "EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM "+t.quoted+" WHERE "+where.text.String(), where.args...)
	if err != nil || len(plan) == 0 || plan[0]["rows"] == "" { // no row can match
		return 0, err
	}
	return strconv.ParseInt(plan[0]["rows"], 10, 64)
}

func (s *Store) scan(ctx context.Context, query *statement, into ...any) error {
	return s.db.QueryRowContext(ctx, query.text.String(), query.args...).Scan(into...)
}

// sample is a query of rows by the status index.
func (t *Table) sample(columns string, where *statement, order string) *statement {
	s := &statement{}
	s.add("SELECT ", columns, " FROM ", t.quoted)
	t.forceIndex(s)
	s.add(" WHERE ", where.text.String(), order)
	s.args = append(s.args, where.args...)
	return s
}

// pendingMixed reports whether the index does not tell PENDING rows that are due from those that are due later: a query of the
// ones would go through any number of the others.
func (t *Table) pendingMixed() bool { return t.has(NextRetryTime) && t.strategy != byDue }

// samplePending is a query of PENDING rows, told apart by their due time. Where the index cannot do that, it looks at the first of
// them only, as many as most says.
func (t *Table) samplePending(columns string, where *statement, order string, most int64) *statement {
	if !t.pendingMixed() {
		return t.sample(columns, where, order)
	}
	s := &statement{}
	s.add("SELECT ", columns, " FROM (SELECT ", t.column(ID), ", ", t.column(StatusCode))
	for _, role := range []Column{NextRetryTime, RetryCount, CreatedAt} {
		if t.has(role) {
			s.add(", ", t.column(role))
		}
	}
	s.add(" FROM ", t.quoted)
	t.forceIndex(s)
	s.add(" WHERE ", t.column(StatusCode), " = ")
	t.code(s, outbox.Pending)
	s.limit(int(most))
	s.add(") AS pending WHERE ", where.text.String(), order)
	s.args = append(s.args, where.args...)
	return s
}

func (s *statement) limit(n int) { s.add(" LIMIT ", strconv.Itoa(n)) }

// inside is a query over the rows of a query.
func (s *statement) inside(columns string) *statement {
	out := &statement{args: s.args}
	out.add("SELECT ", columns, " FROM (", s.text.String(), ") AS sample")
	return out
}

func (t *Table) whereStatus(status outbox.Status) *statement {
	return t.whereCode(t.mapping.Codes[status])
}

func (t *Table) whereCode(code string) *statement {
	s := &statement{}
	s.add(t.column(StatusCode), " = ")
	t.literal(s, code)
	return s
}

func (t *Table) whereDue() *statement {
	s := t.whereStatus(outbox.Pending)
	if t.has(NextRetryTime) {
		s.add(" AND (", t.column(NextRetryTime), " IS NULL OR ", t.column(NextRetryTime), " <= ", t.now(NextRetryTime), ")")
	}
	return s
}

func (t *Table) whereDelayed() *statement {
	s := t.whereStatus(outbox.Pending)
	s.add(" AND ", t.column(NextRetryTime), " > ", t.now(NextRetryTime))
	return s
}

// whereHeld is a few ranges of the index, between the codes that are mapped.
func (t *Table) whereHeld() *statement {
	s := &statement{}
	s.add("(", t.column(StatusCode), " NOT IN (")
	words := t.mapping.words()
	s.list(len(words), func(i int) { t.literal(s, words[i].code) })
	s.add(")")
	if t.columns[StatusCode].Nullable {
		s.add(" OR ", t.column(StatusCode), " IS NULL")
	}
	s.add(")")
	return s
}
