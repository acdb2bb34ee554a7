package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// selectState begins a query of identity and state, the columns that candidates reads.
func (t *Table) selectState() *statement {
	s := &statement{}
	wait, topic := "0", "NULL"
	if t.has(NextRetryTime) {
		wait = "COALESCE(TIMESTAMPDIFF(MICROSECOND, " + t.now(NextRetryTime) + ", " + t.column(NextRetryTime) + "), 0)"
	}
	if t.has(Topic) {
		topic = t.column(Topic)
	}
	if t.mapping.Grace > 0 && t.has(CreatedAt) { // a due time of now does not shorten it; a row made ahead of the clock counts as old
		made, now := t.column(CreatedAt), t.now(CreatedAt)
		wait = fmt.Sprintf("GREATEST(%s, IF(%s > %s, 0, COALESCE(TIMESTAMPDIFF(MICROSECOND, %s, %s) + %d, 0)))", wait, made, now, now, made, t.mapping.Grace.Microseconds())
	}
	s.add("SELECT ", t.column(ID), ", ", t.messageID(), ", ", t.column(StatusCode), ", ", t.retryCount(), ", ", wait, ", ", topic, ", ",
		t.stamp())
	if t.mapping.Ordered {
		for _, role := range []Column{ShardingKey, Key} {
			if t.has(role) {
				s.add(", ", t.column(role))
			} else {
				s.add(", NULL")
			}
		}
	}
	return s
}

// candidates runs a query of selectState. What the query shows behind the columns of the state goes into last, which then has
// the values of the last row.
func (s *Store) candidates(ctx context.Context, t *Table, query *statement, last ...any) ([]outbox.Candidate, error) {
	rows, err := s.db.QueryContext(ctx, query.text.String(), query.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []outbox.Candidate
	now := time.Now()
	for rows.Next() {
		var id, messageID, code, topic, sharding, key sql.RawBytes
		var stamp sql.NullString
		var micros int64
		c := outbox.Candidate{}
		into := []any{&id, &messageID, &code, &c.RetryCount, &micros, &topic, &stamp}
		if t.mapping.Ordered {
			into = append(into, &sharding, &key)
		}
		if err := rows.Scan(append(into, last...)...); err != nil {
			return nil, err
		}
		c.Identity = outbox.Identity{Table: t.name, ID: string(t.keyText(ID, id)), MessageID: string(messageID)}
		c.Status = t.status(code, code == nil)
		c.Waiting = c.Status == outbox.Pending && micros > 0
		c.DueInMilli = (micros + 999) / 1000
		c.Topic, c.ClaimToken = t.Topic(topic), stamp.String
		if c.Key = string(sharding); c.Key == "" { // as Message makes it
			c.Key = string(t.keyText(Key, key))
		}
		s.recall(t, &c, now)
		out = append(out, c)
	}
	return out, rows.Err()
}

// States reads the rows of identities by primary key. Rows that do not exist, or carry another message id, are missing
// from the answer; its order is not that of the question.
func (s *Store) States(ctx context.Context, identities []outbox.Identity) ([]outbox.Candidate, error) {
	var out []outbox.Candidate
	err := s.byKey(identities, func(t *Table, chunk []outbox.Identity) error {
		query := t.selectState()
		query.add(" FROM ", t.quoted, " FORCE INDEX (PRIMARY) WHERE ")
		t.idIn(query, len(chunk), func(i int) string { return chunk[i].ID })
		candidates, err := s.candidates(ctx, t, query)
		if err != nil {
			return err
		}
		asked := set(chunk)
		for _, c := range candidates {
			if asked[c.Identity] {
				out = append(out, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the state of rows: %w", err)
	}
	return out, nil
}

// byKey hands identities to run, by table and in chunks.
func (s *Store) byKey(identities []outbox.Identity, run func(*Table, []outbox.Identity) error) error {
	groups := map[string][]outbox.Identity{}
	for _, identity := range identities {
		t, err := s.table(identity.Table)
		if err != nil {
			return err
		}
		if err := t.checkID(identity.ID); err != nil {
			return fmt.Errorf("table %s: %w", identity.Table, err)
		}
		groups[identity.Table] = append(groups[identity.Table], identity)
	}
	for name, group := range groups {
		t, err := s.table(name)
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(group, maxRows) {
			if err := run(t, chunk); err != nil {
				return fmt.Errorf("table %s: %w", name, err)
			}
		}
	}
	return nil
}

func set(identities []outbox.Identity) map[outbox.Identity]bool {
	m := make(map[outbox.Identity]bool, len(identities))
	for _, identity := range identities {
		m[identity] = true
	}
	return m
}

// ReadBack returns the rows that show our stamp, whole, as messages with Path and Claim set; of a table without claims, those
// that are PENDING and due at this moment. It holds all bodies in memory: the caller bounds the number of identities. Rows that are missing from the answer are not ours to publish:
// another process claimed them, they are gone, or they cannot become a message (no topic, headers that are no JSON object): those come
// as FAILED completions, which are the caller's to write.
func (s *Store) ReadBack(ctx context.Context, stamp string, identities []outbox.Identity) (out []*outbox.Message, faulty []outbox.Completion, err error) {
	err = s.byKey(identities, func(t *Table, chunk []outbox.Identity) error {
		messages, failed, err := s.readBack(ctx, t, outbox.Sending, stamp, chunk)
		out, faulty = append(out, messages...), append(faulty, failed...)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read claimed rows: %w", err)
	}
	return out, faulty, nil
}

// readBack reads rows that a sweep has claimed, or with the status Sent those that show it.
func (s *Store) readBack(ctx context.Context, t *Table, status outbox.Status, stamp string, chunk []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error) {
	query := &statement{}
	query.add("SELECT ", t.messageID(), ", ", t.retryCount())
	for _, role := range t.reads {
		query.add(", ", t.shown(role))
	}
	query.add(" FROM ", t.quoted, " FORCE INDEX (PRIMARY) WHERE ")
	t.idIn(query, len(chunk), func(i int) string { return chunk[i].ID })
	query.add(" AND ")
	t.toBePublished(query, status, stamp)
	query.add(" ORDER BY ", t.column(ID))
	rows, err := s.db.QueryContext(ctx, query.text.String(), query.args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	asked := set(chunk)
	raw, values := make([]sql.RawBytes, len(t.reads)+2), make([]Value, len(t.reads))
	into := make([]any, len(raw))
	for i := range raw {
		into[i] = &raw[i]
	}
	var messages []*outbox.Message
	var faulty []outbox.Completion
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, nil, err
		}
		for i := range values {
			values[i] = Value{Data: raw[i+2], Null: raw[i+2] == nil}
		}
		state := outbox.Candidate{Identity: outbox.Identity{Table: t.name, ID: string(t.keyText(ID, raw[2+t.at[ID]])), MessageID: string(raw[0])}}
		if !asked[state.Identity] {
			continue
		}
		state.RetryCount, _ = strconv.Atoi(string(raw[1])) // an integer column
		if status == outbox.Sent {
			state.Status = status
		}
		if s.recall(t, &state, time.Now()); state.Waiting {
			continue
		}
		m, err := t.Message(values)
		if err != nil {
			faulty = append(faulty, outbox.Completion{
				Identity: state.Identity, Action: outbox.ActionFail, RetryCount: state.RetryCount, Claim: stamp,
				Class: outbox.ClassPermanent, Reason: err.Error(),
			})
			continue
		}
		m.Path, m.Claim, m.Since, m.RetryCount = outbox.PathSweep, stamp, time.Now(), state.RetryCount
		messages = append(messages, m)
	}
	return messages, faulty, rows.Err()
}

// toBePublished writes what rows show that are the caller's to publish.
func (t *Table) toBePublished(s *statement, status outbox.Status, stamp string) {
	switch {
	case status == outbox.Sent:
		t.statusIn(s, outbox.Sent)
	case t.claims():
		t.statusIn(s, outbox.Sending)
		s.add(" AND ", t.stamp(), " = ")
		s.string(stamp)
	default:
		t.statusIn(s, outbox.Pending)
		t.isDue(s)
	}
}

// shown is how a SELECT must show a column to be equal to what the binlog shows.
func (t *Table) shown(role Column) string {
	if t.columns[role].DataType == "timestamp" {
		return "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL UNIX_TIMESTAMP(" + t.column(role) + ") SECOND"
	}
	return t.column(role)
}
