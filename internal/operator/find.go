package operator

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Rows are the mapped tables that have a status.
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
	// Counts counts the rows of every table by status, States returns those of rows.
	Counts(ctx context.Context) ([]query.Counts, error)
	States(ctx context.Context, rows []outbox.Identity) ([]outbox.Candidate, error)
	// Grace is the time that the application has to publish a row itself, FailedEvery the wait of a FAILED row.
	Grace(table string) time.Duration
	FailedEvery(table string) time.Duration
}

// Flow is what a running relay has in memory of a row.
type Flow struct {
	Owned     bool   // the relay owns the row: it is being sent to the broker, or its status is being written
	Behind    string // the earlier row of its key that it waits for, and why that one is not final; "" when it waits for none
	Suspended string // why its topic is suspended; "" when it is not
	Breaker   string // "closed" when the broker takes messages
	Trouble   string // why the breaker is not closed
	Standby   string // why this process publishes nothing at all; "" when it does
}

// table binds the tables and finds the one that is meant.
func (o *Operator) table(ctx context.Context, name string) (Rows, string, error) {
	rows, err := o.Tables(ctx)
	if err != nil {
		return nil, "", err
	}
	names := rows.Names()
	switch {
	case len(names) == 0:
		err = errStateless
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "":
		err = Usagef("the relay serves %d tables, name one of them as table: %s", len(names), strings.Join(names, ", "))
	case !slices.Contains(names, name):
		err = Usagef("table %q is not one of those that the relay serves and whose rows have a status: %s", name, strings.Join(names, ", "))
	}
	return rows, name, err
}

var errStateless = Usagef("no table of this relay has a status: its messages are known from the log and the broker alone")

// ListMessages returns one page. CodeNeedsScan when it would read many rows and the query does not allow that.
func (o *Operator) ListMessages(ctx context.Context, q MessageQuery) (MessagePage, error) {
	if err := q.Check(); err != nil {
		return MessagePage{}, err
	}
	rows, name, err := o.table(ctx, q.Table)
	if err != nil {
		return MessagePage{}, err
	}
	listing, err := q.listing(rows, name)
	if err != nil {
		return MessagePage{}, err
	}
	listing.Limit, listing.After, listing.Scan = q.Limit, q.After, q.Scan
	listed, err := list(ctx, rows, name, listing)
	page := MessagePage{Table: name, Messages: []Message{}, Next: listed.Next, Scan: listed.Scan}
	for i := range listed.Rows {
		page.Messages = append(page.Messages, show(&listed.Rows[i]))
	}
	return page, err
}

// listing translates a filter for a table.
func (f MessageFilter) listing(rows Rows, name string) (query.Listing, error) {
	q := query.Listing{State: f.Status, Type: f.Type, Topic: f.Topic, Key: f.Key, Reason: f.Reason, OlderThan: time.Duration(f.OlderThan)}
	if q.State == "" {
		q.State = outbox.Failed.String()
	}
	states := append(rows.StatesOf(name), query.AnyState)
	if !slices.Contains(states, q.State) {
		return q, Usagef("status %q: the rows of %s are %s", q.State, name, strings.Join(states, ", "))
	}
	return q, nil
}

func list(ctx context.Context, rows Rows, name string, q query.Listing) (query.Listed, error) {
	listed, err := rows.List(ctx, name, q)
	switch {
	case errors.Is(err, query.ErrCursor):
		return listed, Usagef("after: %v", err)
	case err == nil && listed.Scan != "" && !q.Scan:
		return listed, needsScan(listed.Scan)
	}
	return listed, err
}

func needsScan(why string) error {
	return &Error{Code: CodeNeedsScan, Message: why + "; scan=1 (--scan) reads them all the same"}
}

// ShowMessages returns the rows that a text may mean.
func (o *Operator) ShowMessages(ctx context.Context, ref MessageRef) (MessageMatches, error) {
	rows, all, notes, err := o.find(ctx, ref)
	if err != nil {
		return MessageMatches{}, err
	}
	found := MessageMatches{Matches: []MessageDetail{}, Notes: append([]string{}, notes...)}
	if len(all) > shown {
		found.Notes = append(found.Notes, fmt.Sprintf("%q means %d messages, the first %d are shown", ref.Ref, len(all), shown))
		all = all[:shown]
	}
	for i := range all {
		one, err := detail(ctx, rows, &all[i], ref.Body)
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
func (o *Operator) find(ctx context.Context, ref MessageRef) (rows Rows, all []query.Row, notes []string, err error) {
	if err := ref.Check(); err != nil {
		return nil, nil, nil, err
	}
	rows, name, err := o.table(ctx, ref.Table)
	names := []string{name}
	if ref.Table == "" && rows != nil && len(rows.Names()) > 0 {
		names, err = rows.Names(), nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	for _, name := range names {
		found, err := rows.Find(ctx, name, ref.Ref, ref.Scan)
		if err != nil {
			return nil, nil, nil, err
		}
		all = append(all, found.Rows...)
		if found.Scan != "" {
			notes = append(notes, found.Scan)
		}
		if found.More {
			notes = append(notes, fmt.Sprintf("%s has more rows with the key %q than were read", name, ref.Ref))
		}
	}
	switch {
	case len(all) > 0:
		return rows, all, notes, nil
	case len(notes) > 0:
		return nil, nil, nil, needsScan(strings.Join(notes, "; "))
	}
	return nil, nil, nil, NotFoundf("no row of %s has the primary key, message id or business key %q; a row that was sent may have left its table (retention)",
		strings.Join(names, ", "), ref.Ref)
}

// detail reads the whole row.
func detail(ctx context.Context, rows Rows, r *query.Row, body bool) (MessageDetail, error) {
	d := MessageDetail{Message: show(r), Headers: []MessageHeader{}}
	whole, fault, err := rows.Message(ctx, r.Identity)
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
		header := MessageHeader{Name: h.Name}
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
func show(r *query.Row) Message {
	one := Message{
		Table: r.Table, ID: r.ID, MessageID: r.MessageID, Type: r.Type, Topic: r.Topic, Key: r.Key, Status: r.State, Code: r.Code, Attempts: r.Attempts,
		DueAt: timeOrNil(r.Due), CreatedAt: timeOrNil(r.CreatedAt), LastExecution: timeOrNil(r.LastExec), SentAt: timeOrNil(r.SentAt), BrokerID: r.BrokerID,
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

// timeOrNil is nil for the zero time.
func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	utc := at.UTC()
	return &utc
}

// MessageStats counts the rows of a table; "" is the only one.
func (o *Operator) MessageStats(ctx context.Context, tableName string) (MessageStats, error) {
	rows, name, err := o.table(ctx, tableName)
	if err != nil {
		return MessageStats{}, err
	}
	counts, err := rows.Count(ctx, name)
	if err != nil {
		return MessageStats{}, err
	}
	s := MessageStats{Table: name, ByTopic: []TopicStats{}, ByType: []TypeStats{}, Reasons: []ReasonStats{}, Notes: []string{}}
	s.ByStatus, s.Kinds = byStatus(counts)
	b, err := rows.Breakdown(ctx, name)
	if err != nil {
		return s, err
	}
	for _, g := range b.Topics {
		s.ByTopic = append(s.ByTopic, TopicStats{Topic: g.Name, Pending: g.Pending, Failed: g.Failed, OldestAgeSeconds: seconds(g.Oldest)})
	}
	for _, g := range b.Types {
		s.ByType = append(s.ByType, TypeStats{Type: g.Name, Pending: g.Pending, Failed: g.Failed, OldestAgeSeconds: seconds(g.Oldest)})
	}
	for _, r := range b.Reasons {
		s.Reasons = append(s.Reasons, ReasonStats(r))
	}
	if b.Sampled {
		s.Notes = append(s.Notes, fmt.Sprintf("topics, types and reasons are those of the first %d PENDING and the first %d FAILED rows; there are more", b.Looked[0], b.Looked[1]))
	}
	if b.Scan != "" {
		s.Notes = append(s.Notes, "topics, types and reasons were not counted: "+b.Scan)
	}
	return s, nil
}

// byStatus returns the counts of a table by the names of their states, and how exact each is.
func byStatus(c query.Counts) (rows map[string]int64, kinds map[string]string) {
	rows, kinds = map[string]int64{delayed: c.Delayed}, map[string]string{delayed: string(query.Exact)}
	if c.Delayed >= table.MaxCount {
		kinds[delayed] = string(query.AtLeast)
	}
	for status, n := range c.Rows {
		rows[status.String()], kinds[status.String()] = n, string(c.Kind(status))
	}
	for name, n := range c.States {
		rows[name], kinds[name] = n, string(c.StateKind(name))
	}
	return rows, kinds
}
