package query

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Row is a row as a person looks at it, without its body. What the table has no column for is empty, and the zero time. It is a
// record: one field for each line that a person sees.
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
var looks = []table.Column{
	table.ID, table.StatusCode, table.BizType, table.Key, table.Topic, table.RetryCount, table.MaxRetry, table.NextRetryTime, table.CreatedAt, table.LastExecTime, table.SentAt, table.UpdatedAt, table.FailReason, table.BrokerMessageID,
}

// looked are those of them that this table has.
func (t *mapped) looked() []table.Column {
	return slices.DeleteFunc(slices.Clone(looks), func(role table.Column) bool { return !t.Has(role) })
}

// selectLook begins a query that eachLook reads: more is one expression behind the columns.
func (t *mapped) selectLook(more string) *table.Statement {
	s := &table.Statement{}
	age, wait := "NULL", "NULL"
	if t.Has(table.CreatedAt) {
		age = t.Age(table.CreatedAt)
	}
	if t.Has(table.NextRetryTime) {
		wait = "-" + t.Age(table.NextRetryTime)
	}
	s.Add("SELECT ", more, ", ", t.MessageID(), ", ", age, ", ", wait)
	for _, role := range t.looked() {
		column := t.Shown(role)
		if role == table.FailReason {
			column = "LEFT(" + column + ", " + strconv.Itoa(maxReason) + ")"
		}
		s.Add(", ", column)
	}
	return s
}

// eachLook runs a query of selectLook. more is the value of its first expression.
func (s *tables) eachLook(ctx context.Context, t *mapped, query *table.Statement, each func(r *Row, more string)) error {
	roles := t.looked()
	values := make([]sql.RawBytes, 2+len(roles))
	var more sql.NullString
	var age, wait sql.NullInt64
	into := []any{&more, &values[0], &age, &wait}
	for i := range roles {
		into = append(into, &values[1+i])
	}
	now := time.Now()
	return query.Each(ctx, s.db, into, func() error {
		r := &Row{Identity: outbox.Identity{Table: t.Name(), MessageID: string(values[0])}, MaxRetry: -1, Sends: t.Mapping().Retry.Sends}
		for i, role := range roles {
			t.look(r, role, values[1+i])
		}
		r.Age, r.DueIn = time.Duration(age.Int64)*time.Microsecond, time.Duration(wait.Int64)*time.Microsecond
		s.recallLook(t, r, now)
		r.Failed = r.Status == outbox.Failed || !t.Fails() && r.Status == outbox.Pending && r.Attempts > 0
		each(r, more.String)
		return nil
	})
}

// look fills in one column. What cannot be read is left out: a person looks at the row because something is wrong with it.
func (t *mapped) look(r *Row, role table.Column, value []byte) {
	at := func() time.Time {
		zone := time.UTC
		if t.Type(role).DataType != "timestamp" {
			zone = t.Zone()
		}
		t, _ := table.ParseTime(value, zone)
		return t
	}
	switch role {
	case table.ID:
		r.ID = string(t.KeyText(table.ID, value))
	case table.StatusCode:
		r.Status, r.Code = t.Status(value, value == nil), string(value)
		r.State = t.StateName(r.Status, value)
	case table.BizType:
		r.Type = string(t.KeyText(table.BizType, value))
	case table.Key:
		r.Key = string(t.KeyText(table.Key, value))
	case table.Topic:
		r.Topic = t.Topic(value)
	case table.RetryCount:
		r.Attempts, _ = strconv.Atoi(string(value))
	case table.MaxRetry:
		if n, err := strconv.Atoi(string(value)); err == nil {
			r.MaxRetry = n
		}
	case table.NextRetryTime:
		r.Due = at()
	case table.CreatedAt:
		r.CreatedAt = at()
	case table.LastExecTime:
		r.LastExec = at()
	case table.SentAt:
		r.SentAt = at()
	case table.UpdatedAt:
		r.UpdatedAt = at()
	case table.FailReason:
		r.Reason = strings.ToValidUTF8(string(value), string(utf8.RuneError))
	case table.BrokerMessageID:
		r.BrokerID = string(value)
	}
}

// recallLook adds the values that are stored outside the table.
func (s *tables) recallLook(t *mapped, r *Row, now time.Time) {
	if !t.Has(table.Topic) { // by a rule that needs no column
		r.Topic = t.Topic(nil)
	}
	if !t.KeepsWaits() || r.Status != outbox.Pending && t.Has(table.RetryCount) {
		return
	}
	w, ok := s.waits.Wait(r.Identity)
	if !ok {
		return
	}
	if !t.Has(table.RetryCount) {
		r.Attempts = w.Attempts
	}
	if !t.Has(table.NextRetryTime) && r.Status == outbox.Pending {
		r.Due, r.DueIn = w.Due, w.Due.Sub(now)
	}
}

// StatesOf are Table.States of a table by its name; nil when it is not mapped.
func (s *tables) StatesOf(name string) []string {
	if t := s.byName[name]; t != nil {
		return t.States()
	}
	return nil
}

// Names are the names of the mapped tables, in their order.
func (s *tables) Names() []string {
	names := make([]string, len(s.bound))
	for i, t := range s.bound {
		names[i] = t.Name()
	}
	return names
}

// Count is Counts of one table.
func (s counter) Count(ctx context.Context, name string) (Counts, error) {
	return byIndex(s.tables, name, "count", func(t *mapped) (Counts, error) { return s.count(ctx, t) })
}

// behindRow is the cursor behind a row, in an order of the primary key alone.
func behindRow(r *Row) table.Cursor { return table.Cursor{}.Behind("", r.ID) }
