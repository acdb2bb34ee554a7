package table

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Row is a row as a person looks at it, without its body. What the table has no column for is empty, and the zero time.
type Row struct {
	outbox.Identity
	Status    outbox.Status
	State     string // the name of the status, or of the consumers' state; "" for a code without a configured name
	Code      string // as the column has it
	Type      string // the business type
	Topic     string
	Key       string
	Attempts  int
	Failed    bool // FAILED, or, where no row can be that, PENDING after an attempt that was refused
	MaxRetry  int  // the row's own limit; negative when it has none
	Sends     bool // it counts sends; otherwise retries
	Due       time.Time
	DueIn     time.Duration // until Due, by the clock that says it; 0 or less when it has none or has passed
	CreatedAt time.Time
	Age       time.Duration // since CreatedAt, by the database's clock; 0 where that is not known
	LastExec  time.Time     // of the last attempt, or of the claim
	SentAt    time.Time
	UpdatedAt time.Time
	Reason    string // of the last refusal, cut to maxReason
	BrokerID  string
}

// maxReason is how many characters of a reason are read.
const maxReason = 1000

// looks are the roles that make a Row, in addition to the message id.
var looks = []Column{
	ID, StatusCode, BizType, Key, Topic, RetryCount, MaxRetry, NextRetryTime, CreatedAt, LastExecTime, SentAt, UpdatedAt, FailReason, BrokerMessageID,
}

// looked are those of them that this table has.
func (t *Table) looked() []Column {
	return slices.DeleteFunc(slices.Clone(looks), func(role Column) bool { return !t.has(role) })
}

// selectLook begins a query that eachLook reads: more is one expression behind the columns.
func (t *Table) selectLook(more string) *statement {
	s := &statement{}
	age, wait := "NULL", "NULL"
	if t.has(CreatedAt) {
		age = t.age(CreatedAt)
	}
	if t.has(NextRetryTime) {
		wait = "-" + t.age(NextRetryTime)
	}
	s.add("SELECT ", more, ", ", t.messageID(), ", ", age, ", ", wait)
	for _, role := range t.looked() {
		column := t.shown(role)
		if role == FailReason {
			column = "LEFT(" + column + ", " + strconv.Itoa(maxReason) + ")"
		}
		s.add(", ", column)
	}
	return s
}

// eachLook runs a query of selectLook. more is the value of its first expression.
func (s *Store) eachLook(ctx context.Context, t *Table, query *statement, each func(r *Row, more string)) (err error) {
	rows, err := s.db.QueryContext(ctx, query.text.String(), query.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	roles := t.looked()
	values := make([]sql.RawBytes, 2+len(roles))
	var more sql.NullString
	var age, wait sql.NullInt64
	into := []any{&more, &values[0], &age, &wait}
	for i := range roles {
		into = append(into, &values[1+i])
	}
	now := time.Now()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		r := &Row{Identity: outbox.Identity{Table: t.name, MessageID: string(values[0])}, MaxRetry: -1, Sends: t.mapping.Retry.Sends}
		for i, role := range roles {
			t.look(r, role, values[1+i])
		}
		r.Age, r.DueIn = time.Duration(age.Int64)*time.Microsecond, time.Duration(wait.Int64)*time.Microsecond
		s.recallLook(t, r, now)
		r.Failed = r.Status == outbox.Failed || !t.fails() && r.Status == outbox.Pending && r.Attempts > 0
		each(r, more.String)
	}
	return rows.Err()
}

// look fills in one column. What cannot be read is left out: a person looks at the row because something is wrong with it.
func (t *Table) look(r *Row, role Column, value []byte) {
	at := func() time.Time {
		zone := time.UTC
		if t.columns[role].DataType != "timestamp" {
			zone = t.zone.Load()
		}
		moment, _ := parseTime(value, zone)
		return moment
	}
	switch role {
	case ID:
		r.ID = string(t.keyText(ID, value))
	case StatusCode:
		r.Status, r.Code = t.status(value, value == nil), string(value)
		r.State = t.stateName(r.Status, value)
	case BizType:
		r.Type = string(t.keyText(BizType, value))
	case Key:
		r.Key = string(t.keyText(Key, value))
	case Topic:
		r.Topic = t.Topic(value)
	case RetryCount:
		r.Attempts, _ = strconv.Atoi(string(value))
	case MaxRetry:
		if n, err := strconv.Atoi(string(value)); err == nil {
			r.MaxRetry = n
		}
	case NextRetryTime:
		r.Due = at()
	case CreatedAt:
		r.CreatedAt = at()
	case LastExecTime:
		r.LastExec = at()
	case SentAt:
		r.SentAt = at()
	case UpdatedAt:
		r.UpdatedAt = at()
	case FailReason:
		r.Reason = strings.ToValidUTF8(string(value), string(utf8.RuneError))
	case BrokerMessageID:
		r.BrokerID = string(value)
	}
}

// recallLook adds the values that are stored outside the table.
func (s *Store) recallLook(t *Table, r *Row, now time.Time) {
	if !t.has(Topic) { // by a rule that needs no column
		r.Topic = t.Topic(nil)
	}
	if !t.keepsWaits() || r.Status != outbox.Pending && t.has(RetryCount) {
		return
	}
	w, ok := s.waits.Wait(r.Identity)
	if !ok {
		return
	}
	if !t.has(RetryCount) {
		r.Attempts = w.Attempts
	}
	if !t.has(NextRetryTime) && r.Status == outbox.Pending {
		r.Due, r.DueIn = w.Due, w.Due.Sub(now)
	}
}

// stateName is what the mapping calls a code.
func (t *Table) stateName(status outbox.Status, code []byte) string {
	if status != outbox.Held {
		return status.String()
	}
	fold := t.columns[StatusCode].ignoresCase()
	for name, want := range t.mapping.States {
		if string(code) == want || fold && strings.EqualFold(string(code), want) {
			return name
		}
	}
	return ""
}

// States are the names by which rows can be listed: the statuses that this table has, the states that its mapping names, and at last held
// and delayed.
func (t *Table) States() (names []string) {
	for _, w := range t.mapping.words() {
		names = append(names, w.name)
	}
	if !t.fails() {
		names = append(names, outbox.Failed.String())
	}
	return append(names, HeldState, DelayedState)
}

// StatesOf are Table.States of a table by its name; nil when it is not mapped.
func (s *Store) StatesOf(table string) []string {
	if t := s.byName[table]; t != nil {
		return t.States()
	}
	return nil
}

// Names are the names of the mapped tables, in their order.
func (s *Store) Names() []string {
	names := make([]string, len(s.tables))
	for i, t := range s.tables {
		names[i] = t.name
	}
	return names
}

// Count is Counts of one table.
func (s *Store) Count(ctx context.Context, table string) (Counts, error) {
	return byIndex(s, table, "count", func(t *Table) (Counts, error) { return s.count(ctx, t) })
}
