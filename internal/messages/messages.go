// Package messages is what an operator can find out about single messages, and do to them: list, show, trace, retry, discard, count. It
// is the same for the API, the commands and the page, with a daemon and without one.
//
// Guarantee: what is looked at is neither locked nor changed, and no question reads a large table unless it is told to. What is changed
// was previewed by the same rules, and each row is changed only while it still is what the preview showed: by primary key, under a guard
// of its status and its message id. Nothing is said of a message that neither the table, the state directory, the relay nor the broker
// says; what is not known is called so.
//
// It owns no goroutine.
package messages

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Rows are the mapped tables; *store.Store and *query.Reader together implement it.
type Rows interface {
	Names() []string
	StatesOf(table string) []string
	List(ctx context.Context, table string, q query.Listing) (query.Listed, error)
	Find(ctx context.Context, table, ref string, scan bool) (query.Found, error)
	Message(ctx context.Context, id outbox.Identity) (m *outbox.Message, fault, err error)
	Count(ctx context.Context, table string) (query.Counts, error)
	Breakdown(ctx context.Context, table string) (query.Breakdown, error)
	Retry(ctx context.Context, ids []outbox.Identity) (int64, error)
	Republish(ctx context.Context, ids []outbox.Identity) (int64, error)
	Discard(ctx context.Context, ids []outbox.Identity) (int64, error)
	FailedLog(ctx context.Context, table string) ([]server.Finding, error)
}

// Messages answers for the tables of one relay. It implements operator.Messages.
type Messages struct{ Parts }

// Parts is what Messages looks at. It does not change.
type Parts struct {
	Rows Rows
	// Refuse is why nothing may be changed; nil when it may.
	Refuse error
	// Journal and History are of the state directory; nil where that cannot be looked into.
	Journal func() ([]outbox.Completion, error)
	History func() ([]operator.HistoryEntry, error)
	// Flow is the running relay's view of a row; nil when none runs here.
	Flow func(id outbox.Identity, topic string) Flow
	// Begin records a change before its work, and what it returns the end of it; nil where there is no state directory.
	Begin func(ctx context.Context, what, before string) (finish func(after string, err error) error, err error)
	// Noted returns what the state directory has noted on a row; Note notes what a person does to rows. Both are nil without a directory.
	Noted func(outbox.Identity) ([]operator.TraceEvent, error)
	Note  func(ids []outbox.Identity, what, detail string)
	// Broker opens a way to read topics back, to be closed after use; nil where the sink cannot be read.
	Broker func() (sink.Reader, func(), error)
	// Swept asks the running relay for a sweep; nil when none runs here.
	Swept func() error
	// ClaimTimeout, Interval, Grace and FailedEvery are those of the configuration.
	ClaimTimeout, Interval time.Duration
	Grace, FailedEvery     func(table string) time.Duration
}

var _ operator.Messages = (*Messages)(nil)

// Flow is what a running relay knows of a row.
type Flow struct {
	Owned     bool   // the row is in the relay's hands: on its way to the broker, or its status is being written
	Behind    string // the earlier row of its key that it waits for, and why that one is not final; "" when it waits for none
	Suspended string // why its topic is suspended; "" when it is not
	Breaker   string // "closed" when the broker takes messages
	Trouble   string // why the breaker is not closed
	Standby   string // why this process publishes nothing at all; "" when it does
}

// table finds the table that is meant.
func (m *Messages) table(name string) (string, error) {
	names := m.Rows.Names()
	switch {
	case len(names) == 0:
		return "", errStateless
	case name == "" && len(names) == 1:
		return names[0], nil
	case name == "":
		return "", operator.Usagef("the relay serves %d tables, name one of them as table: %s", len(names), strings.Join(names, ", "))
	case slices.Contains(names, name):
		return name, nil
	}
	return "", operator.Usagef("table %q is not one of those that the relay serves and whose rows have a status: %s", name, strings.Join(names, ", "))
}

var errStateless = operator.Usagef("no table of this relay has a status: its messages are known from the log and the broker alone")

// tables are those to look for a message in.
func (m *Messages) tables(name string) ([]string, error) {
	if names := m.Rows.Names(); name == "" && len(names) > 0 {
		return names, nil
	}
	one, err := m.table(name)
	return []string{one}, err
}

// ListMessages implements operator.Messages.
func (m *Messages) ListMessages(ctx context.Context, q operator.MessageQuery) (operator.MessagePage, error) {
	if err := q.Check(); err != nil {
		return operator.MessagePage{}, err
	}
	name, err := m.table(q.Table)
	if err != nil {
		return operator.MessagePage{}, err
	}
	listing, err := m.listing(name, q.MessageFilter)
	if err != nil {
		return operator.MessagePage{}, err
	}
	listing.Limit, listing.After, listing.Scan = q.Limit, q.After, q.Scan
	listed, err := m.list(ctx, name, listing)
	page := operator.MessagePage{Table: name, Messages: []operator.Message{}, Next: listed.Next, Scan: listed.Scan}
	for i := range listed.Rows {
		page.Messages = append(page.Messages, show(&listed.Rows[i]))
	}
	return page, err
}

// listing translates a filter.
func (m *Messages) listing(name string, f operator.MessageFilter) (query.Listing, error) {
	q := query.Listing{State: f.Status, Type: f.Type, Topic: f.Topic, Key: f.Key, Reason: f.Reason, OlderThan: time.Duration(f.OlderThan)}
	if q.State == "" {
		q.State = outbox.Failed.String()
	}
	states := append(m.Rows.StatesOf(name), query.AnyState)
	if !slices.Contains(states, q.State) {
		return q, operator.Usagef("status %q: the rows of %s are %s", q.State, name, strings.Join(states, ", "))
	}
	return q, nil
}

func (m *Messages) list(ctx context.Context, name string, q query.Listing) (query.Listed, error) {
	listed, err := m.Rows.List(ctx, name, q)
	switch {
	case errors.Is(err, query.ErrPlace):
		return listed, operator.Usagef("after: %v", err)
	case err == nil && listed.Scan != "" && !q.Scan:
		return listed, needsScan(listed.Scan)
	}
	return listed, err
}

func needsScan(why string) error {
	return &operator.Error{Code: operator.CodeNeedsScan, Message: why + "; scan=1 (--scan) reads them all the same"}
}

// ShowMessages implements operator.Messages.
func (m *Messages) ShowMessages(ctx context.Context, ref operator.MessageRef) (operator.MessageMatches, error) {
	rows, notes, err := m.find(ctx, ref)
	if err != nil {
		return operator.MessageMatches{}, err
	}
	found := operator.MessageMatches{Matches: []operator.MessageDetail{}, Notes: append([]string{}, notes...)}
	if len(rows) > shown {
		found.Notes = append(found.Notes, fmt.Sprintf("%q means %d messages, the first %d are shown", ref.Ref, len(rows), shown))
		rows = rows[:shown]
	}
	for i := range rows {
		one, err := m.detail(ctx, &rows[i], ref.Body)
		if err != nil {
			return found, err
		}
		found.Matches = append(found.Matches, one)
	}
	return found, nil
}

// shown is how many rows an answer shows of those that were found or are to be changed.
const shown = 20

// find returns the rows that a text may mean, at least one.
func (m *Messages) find(ctx context.Context, ref operator.MessageRef) (rows []query.Row, notes []string, err error) {
	if err := ref.Check(); err != nil {
		return nil, nil, err
	}
	names, err := m.tables(ref.Table)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		found, err := m.Rows.Find(ctx, name, ref.Ref, ref.Scan)
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, found.Rows...)
		if found.Scan != "" {
			notes = append(notes, found.Scan)
		}
		if found.More {
			notes = append(notes, fmt.Sprintf("%s has more rows with the key %q than were read", name, ref.Ref))
		}
	}
	switch {
	case len(rows) > 0:
		return rows, notes, nil
	case len(notes) > 0:
		return nil, nil, needsScan(strings.Join(notes, "; "))
	}
	return nil, nil, operator.NotFoundf("no row of %s has the primary key, message id or business key %q; a row that was sent may have left its table (retention)",
		strings.Join(names, ", "), ref.Ref)
}

// detail reads the whole row.
func (m *Messages) detail(ctx context.Context, r *query.Row, body bool) (operator.MessageDetail, error) {
	d := operator.MessageDetail{Message: show(r), Headers: []operator.MessageHeader{}}
	whole, fault, err := m.Rows.Message(ctx, r.Identity)
	switch {
	case err != nil:
		return d, err
	case fault != nil:
		d.Fault = fault.Error()
		return d, nil
	case whole == nil:
		d.Fault = "the row is gone, or was replaced by another one, since it was found"
		return d, nil
	}
	for _, h := range whole.Headers {
		header := operator.MessageHeader{Name: h.Name}
		if body {
			header.Value = &h.Value
		}
		d.Headers = append(d.Headers, header)
	}
	d.BodyBytes = len(whole.Body)
	if body {
		text, encoding := string(whole.Body), "utf-8"
		if !utf8.Valid(whole.Body) {
			text, encoding = base64.StdEncoding.EncodeToString(whole.Body), "base64"
		}
		d.Body, d.BodyEncoding = &text, encoding
	}
	return d, nil
}

// show is a row as the API has it.
func show(r *query.Row) operator.Message {
	one := operator.Message{
		Table: r.Table, ID: r.ID, MessageID: r.MessageID, Type: r.Type, Topic: r.Topic, Key: r.Key, Status: r.State, Code: r.Code, Attempts: r.Attempts,
		DueAt: moment(r.Due), CreatedAt: moment(r.CreatedAt), LastExecution: moment(r.LastExec), SentAt: moment(r.SentAt), BrokerID: r.BrokerID,
		Reason: r.Reason,
	}
	if one.Status == "" {
		one.Status = r.Status.String()
	}
	if !r.CreatedAt.IsZero() {
		age := r.Age.Seconds()
		one.AgeSeconds = &age
	}
	return one
}

// moment is nil for no time.
func moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	utc := at.UTC()
	return &utc
}

// MessageStats implements operator.Messages.
func (m *Messages) MessageStats(ctx context.Context, tableName string) (operator.MessageStats, error) {
	name, err := m.table(tableName)
	if err != nil {
		return operator.MessageStats{}, err
	}
	counts, err := m.Rows.Count(ctx, name)
	if err != nil {
		return operator.MessageStats{}, err
	}
	s := operator.MessageStats{
		Table: name, ByStatus: map[string]int64{"delayed": counts.Delayed}, Kinds: map[string]string{"delayed": string(query.Exact)},
		ByTopic: []operator.TopicStats{}, ByType: []operator.TypeStats{}, Reasons: []operator.ReasonStats{}, Notes: []string{},
	}
	if counts.Delayed >= table.MaxCount {
		s.Kinds["delayed"] = string(query.AtLeast)
	}
	for status, n := range counts.Rows {
		s.ByStatus[status.String()], s.Kinds[status.String()] = n, string(counts.Kind(status))
	}
	for state, n := range counts.States {
		s.ByStatus[state], s.Kinds[state] = n, string(counts.StateKind(state))
	}
	b, err := m.Rows.Breakdown(ctx, name)
	if err != nil {
		return s, err
	}
	for _, g := range b.Topics {
		s.ByTopic = append(s.ByTopic, operator.TopicStats{Topic: g.Name, Pending: g.Pending, Failed: g.Failed, OldestAgeSeconds: ageOf(g.Oldest)})
	}
	for _, g := range b.Types {
		s.ByType = append(s.ByType, operator.TypeStats{Type: g.Name, Pending: g.Pending, Failed: g.Failed, OldestAgeSeconds: ageOf(g.Oldest)})
	}
	for _, r := range b.Reasons {
		s.Reasons = append(s.Reasons, operator.ReasonStats(r))
	}
	if b.Sampled {
		s.Notes = append(s.Notes, fmt.Sprintf("topics, types and reasons are those of the first %d PENDING and the first %d FAILED rows; there are more", b.Looked[0], b.Looked[1]))
	}
	if b.Scan != "" {
		s.Notes = append(s.Notes, "topics, types and reasons were not counted: "+b.Scan)
	}
	return s, nil
}

// ageOf is nil for no age.
func ageOf(age time.Duration) *float64 {
	if age <= 0 {
		return nil
	}
	seconds := age.Seconds()
	return &seconds
}
