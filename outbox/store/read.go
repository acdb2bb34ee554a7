package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// selectState begins a query of identity and state, the columns that candidates reads.
func (t *mapped) selectState() *table.Statement {
	s := &table.Statement{}
	topic := "NULL"
	if t.Has(table.Topic) {
		topic = t.Column(table.Topic)
	}
	s.Add("SELECT ", t.KeyShown(), ", ", t.MessageID(), ", ", t.Column(table.StatusCode), ", ", t.RetryCount(), ", ", t.wait(), ", ", topic, ", ",
		t.stamp())
	if t.Mapping().Ordered {
		for _, role := range []table.Column{table.ShardingKey, table.Key} {
			if t.Has(role) {
				s.Add(", ", t.Column(role))
			} else {
				s.Add(", NULL")
			}
		}
	}
	return s
}

// wait is how many microseconds a row still waits, by the database's clock. A row whose time cannot be read does not wait.
//
// In the hour that comes twice when summer time ends, the local time of a TIMESTAMP says too little, and so does its time in UTC: what a session in local
// time writes then is stored as the first of the two. The row waits for the later one, so it is never published before its time.
func (t *mapped) wait() string {
	wait := "0"
	if t.Has(table.NextRetryTime) {
		left := func(now, due string) string {
			return "COALESCE(TIMESTAMPDIFF(MICROSECOND, " + now + ", " + due + "), 0)"
		}
		wait = left(t.Now(table.NextRetryTime), t.Column(table.NextRetryTime))
		if t.Type(table.NextRetryTime).DataType == "timestamp" {
			wait = "GREATEST(" + wait + ", " + left("UTC_TIMESTAMP(3)", t.Shown(table.NextRetryTime)) + ")"
		}
	}
	if t.hasGrace() { // a due time of now does not shorten it
		wait = "GREATEST(" + wait + ", " + t.graceLeft() + ")"
	}
	return wait
}

func (t *mapped) hasGrace() bool { return t.Mapping().Grace > 0 && t.Has(table.CreatedAt) }

// graceLeft is how many microseconds of its grace a row has left, by the database's clock. A row that was made far ahead of that clock counts as old.
//
// The clock may have been set forward or back meanwhile, as at both ends of summer time: then the row has the longer of what the clock says, and what it
// would say without the change. A grace of less than an hour is exact in that way, and a longer one may last an hour more.
func (t *mapped) graceLeft() string {
	left := func(now string) string {
		return fmt.Sprintf("IF(%s > %s + INTERVAL %d MICROSECOND, 0, COALESCE(TIMESTAMPDIFF(MICROSECOND, %s, %s) + %d, 0))",
			t.Column(table.CreatedAt), now, table.CreatedAhead.Microseconds(), now, t.Column(table.CreatedAt), t.grace().Microseconds())
	}
	return "GREATEST(" + left(t.Now(table.CreatedAt)) + ", " + left(t.UnchangedNow(table.CreatedAt, t.grace())) + ")"
}

// grace is how long after its created_at a row is the application's. A column of whole seconds, or milliseconds, does not say when within the last of
// them the row was made, so the grace is longer by one, and by what a row is taken before its time.
func (t *mapped) grace() time.Duration {
	if !t.hasGrace() {
		return t.Mapping().Grace
	}
	unit := time.Second
	for range t.Type(table.CreatedAt).Fraction {
		unit /= 10
	}
	return t.Mapping().Grace + unit + earlyMicros*time.Microsecond
}

// stateRow is one row of a query of selectState. It is reused from row to row.
type stateRow struct {
	id, messageID, code, retries, wait, topic, stamp, sharding, key sql.RawBytes

	rawTopic []byte // of the row before, and what Topic made of it: most rows have the topic of their neighbours
	madeOf   string
}

// columns are where a query is read to.
func (r *stateRow) columns(t *mapped, last []any) []any {
	into := []any{&r.id, &r.messageID, &r.code, &r.retries, &r.wait, &r.topic, &r.stamp}
	if t.Mapping().Ordered {
		into = append(into, &r.sharding, &r.key)
	}
	return append(into, last...)
}

// candidate returns the state of the row without its identity.
func (r *stateRow) candidate(t *mapped) (c outbox.Candidate, err error) {
	micros, err := strconv.ParseInt(string(r.wait), 10, 64)
	if err == nil {
		c.RetryCount, err = strconv.Atoi(string(r.retries))
	}
	if r.madeOf == "" || string(r.rawTopic) != string(r.topic) {
		r.rawTopic, r.madeOf = append(r.rawTopic[:0], r.topic...), t.Topic(r.topic)
	}
	c.Status = t.Status(r.code, r.code == nil)
	c.Waiting = c.Status == outbox.Pending && micros > 0
	c.DueInMilli = (micros + 999) / 1000
	c.Topic, c.ClaimToken = r.madeOf, string(r.stamp)
	c.Untouched = c.Status == outbox.Pending && c.RetryCount == 0 && t.Has(table.LastExecTime) && r.stamp == nil
	if c.Key = string(r.sharding); c.Key == "" { // as Message makes it
		c.Key = string(t.KeyText(table.Key, r.key))
	}
	return c, err
}

// eachState runs a query of selectState. What the query shows behind the columns of the state goes into last, which then has the values of
// the last row.
func (s *tables) eachState(ctx context.Context, t *mapped, query *table.Statement, last []any, each func(*stateRow)) error {
	var row stateRow
	return query.Each(ctx, s.db, row.columns(t, last), func() error {
		each(&row)
		return nil
	})
}

// candidates are the rows of a query of selectState; last is as in eachState. A row whose state cannot be used is among them as unreadable, and
// noted as refused.
func (s *tables) candidates(ctx context.Context, t *mapped, query *table.Statement, last ...any) (out []outbox.Candidate, err error) {
	now := time.Now()
	var refused []RefusedRow
	err = s.eachState(ctx, t, query, last, func(r *stateRow) {
		c, cause := r.candidate(t)
		c.Identity = outbox.Identity{Table: t.Name(), ID: string(t.KeyText(table.ID, r.id)), MessageID: string(r.messageID)}
		if cause = cmp.Or(cause, t.CheckID(c.ID)); cause != nil {
			refused = append(refused, RefusedRow{Identity: c.Identity, Reason: cause.Error()})
			unreadable(&c)
		} else {
			s.recall(t, &c, now)
		}
		out = append(out, c)
	})
	s.refused.add(refused...)
	return out, err
}

// askedFor are empty maps for States.
var askedFor = sync.Pool{New: func() any { return map[outbox.Identity]int{} }}

// States reads the rows of identities by primary key. Rows that do not exist, or carry another message id, are missing
// from the answer; its order is not that of the question. The answer shares the memory of the identities that were asked for. A row whose state
// cannot be read is in it as unreadable, noted as refused, and keeps no other row from the answer.
func (s finder) States(ctx context.Context, identities []outbox.Identity) ([]outbox.Candidate, error) {
	out := make([]outbox.Candidate, 0, len(identities))
	refused, err := s.byKeyApart(identities, func(t *mapped, chunk []outbox.Identity) error {
		found, err := s.states(ctx, t, chunk, out)
		if err == nil {
			out = found
		}
		return err
	})
	s.refused.add(refused...)
	if err != nil {
		return nil, fmt.Errorf("read the state of rows: %w", err)
	}
	for _, r := range refused {
		c := outbox.Candidate{Identity: r.Identity}
		unreadable(&c)
		out = append(out, c)
	}
	return out, nil
}

// states appends the states of rows of one table.
func (s *tables) states(ctx context.Context, t *mapped, chunk []outbox.Identity, out []outbox.Candidate) ([]outbox.Candidate, error) {
	now := time.Now()
	query := t.selectState()
	t.FromKeys(query, len(chunk), func(i int) string { return chunk[i].ID })
	asked := askedFor.Get().(map[outbox.Identity]int)
	defer func() {
		clear(asked)
		askedFor.Put(asked)
	}()
	for i, id := range chunk {
		asked[id] = i
	}
	var refused []RefusedRow
	err := s.eachState(ctx, t, query, nil, func(r *stateRow) {
		i, found := asked[outbox.Identity{Table: t.Name(), ID: string(t.KeyText(table.ID, r.id)), MessageID: string(r.messageID)}]
		if !found {
			return
		}
		c, cause := r.candidate(t)
		c.Identity = chunk[i]
		if cause != nil {
			refused = append(refused, RefusedRow{Identity: c.Identity, Reason: cause.Error()})
			unreadable(&c)
		} else {
			s.recall(t, &c, now)
		}
		out = append(out, c)
	})
	s.refused.add(refused...)
	return out, err
}

// byKey hands identities to run, by table and in chunks. A row that no statement can name, or for whose data the server refuses the statement,
// is left out and noted as refused; run is called again with smaller parts of its chunk, and so has no effect when it fails.
func (s *tables) byKey(identities []outbox.Identity, run func(*mapped, []outbox.Identity) error) error {
	refused, err := s.byKeyApart(identities, run)
	s.refused.add(refused...)
	return err
}

// byKeyTold is byKey for what an operator asks for: the rows that were left out are an error, after all others were handled.
func (s *tables) byKeyTold(identities []outbox.Identity, run func(*mapped, []outbox.Identity) error) error {
	refused, err := s.byKeyApart(identities, run)
	if n := len(refused); n > 0 {
		last := refused[n-1]
		err = errors.Join(err, fmt.Errorf("%d rows are left as they are, the last with id %q (%s) of %s: %s", n, last.ID, last.MessageID, last.Table, last.Reason))
	}
	return err
}

func (s *tables) byKeyApart(identities []outbox.Identity, run func(*mapped, []outbox.Identity) error) (refused []RefusedRow, err error) {
	groups := map[string][]outbox.Identity{}
	for rest := identities; len(rest) > 0; { // runs of one table, which is nearly always all: then nothing is copied
		n := 1
		for n < len(rest) && rest[n].Table == rest[0].Table {
			n++
		}
		if group := groups[rest[0].Table]; group == nil {
			groups[rest[0].Table] = rest[:n:n]
		} else {
			groups[rest[0].Table] = append(group, rest[:n]...)
		}
		rest = rest[n:]
	}
	for name := range groups {
		if _, err := s.table(name); err != nil {
			return nil, err
		}
	}
	for name, group := range groups {
		t := s.byName[name]
		group, unnamed := named(t, group, ownIdentity)
		refused = append(refused, unnamed...)
		for chunk := range slices.Chunk(group, table.MaxRows) {
			apart, err := isolate(chunk, ownIdentity, func(some []outbox.Identity) error { return run(t, some) })
			refused = append(refused, apart...)
			if err != nil {
				return refused, fmt.Errorf("table %s: %w", name, err)
			}
		}
	}
	return refused, nil
}

func set(identities []outbox.Identity) map[outbox.Identity]bool {
	m := make(map[outbox.Identity]bool, len(identities))
	for _, identity := range identities {
		m[identity] = true
	}
	return m
}

// ReadBack returns the rows that show our stamp, whole, as messages with Path and Claim set; of a table without claims, those
// that are PENDING and due now. It holds all bodies in memory: the caller bounds the number of identities. Rows that are missing from the answer are not ours to publish:
// another process claimed them, they are gone, or they cannot become a message (no topic, headers that are no JSON object): those come
// as FAILED completions, which are the caller's to write. A row that the server cannot show is missing, too, and noted as refused.
func (s changes) ReadBack(ctx context.Context, stamp string, identities []outbox.Identity) (out []*outbox.Message, faulty []outbox.Completion, err error) {
	err = s.byKey(identities, func(t *mapped, chunk []outbox.Identity) error {
		messages, failed, err := s.readBack(ctx, t, outbox.Sending, stamp, chunk)
		if err == nil {
			out, faulty = append(out, messages...), append(faulty, failed...)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read claimed rows: %w", err)
	}
	return out, faulty, nil
}

// readBack reads rows that a sweep has claimed, or with the status Sent those that show it.
func (s changes) readBack(ctx context.Context, t *mapped, status outbox.Status, stamp string, chunk []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error) {
	query := t.SelectWhole(t.MessageID(), t.RetryCount())
	query.Add(" FORCE INDEX (PRIMARY) WHERE ")
	t.IDIn(query, len(chunk), func(i int) string { return chunk[i].ID })
	query.Add(" AND ")
	t.toBePublished(query, status, stamp)
	query.Add(" ORDER BY ", t.Column(table.ID))
	asked, whole := set(chunk), t.NewWholeRow(2)
	var messages []*outbox.Message
	var faulty []outbox.Completion
	err := query.Each(ctx, s.db, whole.Into(), func() error {
		state := outbox.Candidate{Identity: outbox.Identity{Table: t.Name(), ID: whole.ID(), MessageID: string(whole.First[0])}}
		if !asked[state.Identity] {
			return nil
		}
		state.RetryCount, _ = strconv.Atoi(string(whole.First[1])) // an integer column
		if status == outbox.Sent {
			state.Status = status
		}
		if s.recall(t, &state, time.Now()); state.Waiting {
			return nil
		}
		values := whole.Values()
		m, err := t.Message(values)
		if err != nil {
			faulty = append(faulty, outbox.Completion{
				Identity: state.Identity, Action: outbox.ActionFail, RetryCount: state.RetryCount, Claim: stamp,
				Class: outbox.ClassPermanent, Reason: err.Error(), Key: t.textOf(table.Key, values), BizType: t.textOf(table.BizType, values),
			})
			return nil
		}
		m.Path, m.Claim, m.Since, m.RetryCount = outbox.PathSweep, stamp, time.Now(), state.RetryCount
		messages = append(messages, m)
		return nil
	})
	return messages, faulty, err
}

// textOf is the value of a role as text; "" when the table does not have it.
func (t *mapped) textOf(role table.Column, values []table.Value) string {
	if !t.Has(role) || t.At(role) >= len(values) {
		return ""
	}
	return string(t.KeyText(role, values[t.At(role)].Data))
}

// toBePublished writes what rows show that are the caller's to publish.
func (t *mapped) toBePublished(s *table.Statement, status outbox.Status, stamp string) {
	switch {
	case status == outbox.Sent:
		t.statusIn(s, outbox.Sent)
	case t.Claims():
		t.statusIn(s, outbox.Sending)
		s.Add(" AND ", t.stamp(), " = ")
		s.Arg(stamp)
	default:
		t.statusIn(s, outbox.Pending)
		t.isDue(s)
	}
}
