package operator

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"
)

// Messages is what can be found out about single messages, and done to them: see the methods of Operator.
type Messages interface {
	ListMessages(ctx context.Context, q MessageQuery) (MessagePage, error)
	ShowMessages(ctx context.Context, ref MessageRef) (MessageMatches, error)
	TraceMessage(ctx context.Context, ref MessageRef) (Trace, error)
	RetryMessages(ctx context.Context, order MessageOrder) (MessageChange, error)
	DiscardMessages(ctx context.Context, order MessageOrder) (MessageChange, error)
	MessageStats(ctx context.Context, table string) (MessageStats, error)
}

// MessageFilter says which messages are meant. What is empty does not narrow.
type MessageFilter struct {
	// Status is pending, sending, sent, failed, a state that the configuration names, delayed (PENDING and due later), held (a code that the
	// configuration does not name), or any. Failed are also the rows that wait after a refusal where the table has no code for FAILED.
	Status    string   `json:"status,omitempty"`
	Type      string   `json:"type,omitempty"` // the business type, exactly
	Topic     string   `json:"topic,omitempty"`
	Key       string   `json:"key,omitempty"`
	Reason    string   `json:"reason,omitempty"` // a part of it, whatever its case
	OlderThan Duration `json:"older_than,omitempty"`
}

// MessageQuery asks for a page of a list.
type MessageQuery struct {
	Table string // schema.table; "" is the only one that the relay serves
	MessageFilter
	Limit int
	After string // MessagePage.Next of the page before
	Scan  bool   // read a large table if it takes that
}

// MessageRef names a message: by primary key, message id or business key.
type MessageRef struct {
	Ref   string
	Table string // schema.table; "" looks in all
	Body  bool   // show the body and the values of headers, too
	Scan  bool
}

// MessageOrder says what is to be retried or discarded: rows by primary key or message id, or those of a filter; or rows to republish.
type MessageOrder struct {
	Table  string         `json:"table,omitempty"`
	IDs    []string       `json:"ids,omitempty"`
	Filter *MessageFilter `json:"filter,omitempty"`
	// Rows are those that reconcile --republish found missing. Only with Republish; a row that has changed is left alone.
	Rows  []MessageRow `json:"rows,omitempty"`
	Limit int          `json:"limit,omitempty"` // rows at most; 0 is 100
	Scan  bool         `json:"scan,omitempty"`
	// Republish lets a retry take messages that are SENT: they are published again, on purpose.
	Republish bool `json:"republish,omitempty"`
	DryRun    bool `json:"dry_run,omitempty"` // the preview alone
}

// MessageRow names a row for certain.
type MessageRow struct {
	ID        string `json:"id"` // the primary key
	MessageID string `json:"message_id"`
}

// Message is a row as a person looks at it. What the table has no column for is absent.
type Message struct {
	Table         string     `json:"table"`
	ID            string     `json:"id"`
	MessageID     string     `json:"message_id"`
	Type          string     `json:"type,omitempty"` // the business type
	Topic         string     `json:"topic,omitempty"`
	Key           string     `json:"key,omitempty"`
	Status        string     `json:"status"` // or the name of a state of the consumers; "held" for a code that the configuration does not name
	Code          string     `json:"code"`   // as the column has it
	Attempts      int        `json:"attempts"`
	DueAt         *time.Time `json:"due_at,omitempty"`
	CreatedAt     *time.Time `json:"created_at,omitempty"`
	AgeSeconds    *float64   `json:"age_seconds,omitempty"` // since then, by the database's clock
	LastExecution *time.Time `json:"last_execution,omitempty"`
	SentAt        *time.Time `json:"sent_at,omitempty"`
	BrokerID      string     `json:"broker_id,omitempty"`
	Reason        string     `json:"reason,omitempty"` // of the last refusal
}

// MessagePage is one page of a list.
type MessagePage struct {
	Table    string    `json:"table"`
	Messages []Message `json:"messages"`
	Next     string    `json:"next"` // where the next page begins; "" at the end
	Scan     string    `json:"scan"` // why it read many rows, where that was allowed; "" when it did not
}

// MessageMatches are the rows that a text may mean.
type MessageMatches struct {
	Matches []MessageDetail `json:"matches"`
	// Notes say what was not looked for, and what of a row cannot be read.
	Notes []string `json:"notes"`
}

// MessageDetail is a whole row. The body is there when it was asked for: as text, or in base64 when it is none.
type MessageDetail struct {
	Message
	Headers      []MessageHeader `json:"headers"`
	BodyBytes    int             `json:"body_bytes"`
	Body         *string         `json:"body,omitempty"`
	BodyEncoding string          `json:"body_encoding,omitempty"` // utf-8 or base64
	Fault        string          `json:"fault,omitempty"`         // why the row cannot be made a message
}

// MessageHeader is a header as it is published. The value is there when the body was asked for, too.
type MessageHeader struct {
	Name  string  `json:"name"`
	Value *string `json:"value,omitempty"`
}

// Trace is what is known of a message. Unknown says in sentences what is not.
type Trace struct {
	Message  Message      `json:"message"`
	Events   []TraceEvent `json:"events"`    // the oldest first; those without a time last
	WaitsFor string       `json:"waits_for"` // what would have to happen next; "" when nothing has to
	Unknown  []string     `json:"unknown"`
}

// TraceEvent is something that happened to a message, or holds it up.
type TraceEvent struct {
	At     *time.Time `json:"at,omitempty"`
	What   string     `json:"what"` // inserted, in_log, claimed, attempt, published, written, waiting, suspended, ...
	Detail string     `json:"detail"`
	Source string     `json:"source"` // whose word it is: table, state, log, broker, relay
}

// MessageChange is what an order does.
type MessageChange struct {
	Table    string           `json:"table"`
	Matched  int              `json:"matched"` // rows that the order can be carried out for
	Changed  int              `json:"changed"` // 0 for a dry run
	More     bool             `json:"more"`    // more rows than the limit match the filter
	DryRun   bool             `json:"dry_run"`
	Messages []Message        `json:"messages"` // the first of those that match
	Refused  []MessageRefusal `json:"refused"`  // of the rows that were named
	Notes    []string         `json:"notes"`    // what follows, or prevents it
}

// MessageRefusal is a message that an order names and cannot be carried out for.
type MessageRefusal struct {
	Ref    string `json:"ref"`
	Reason string `json:"reason"`
}

// MessageStats counts the rows of a table.
type MessageStats struct {
	Table    string            `json:"table"`
	ByStatus map[string]int64  `json:"by_status"`
	Kinds    map[string]string `json:"kinds"` // how exact each count is: exact, at_least, estimate
	ByTopic  []TopicStats      `json:"by_topic"`
	ByType   []TypeStats       `json:"by_type"` // empty where the table has no column for it
	Reasons  []ReasonStats     `json:"reasons"`
	Notes    []string          `json:"notes"` // which of it is of a sample
}

// TopicStats counts the rows of a topic that are not done.
type TopicStats struct {
	Topic            string   `json:"topic"`
	Pending          int64    `json:"pending"`
	Failed           int64    `json:"failed"`
	OldestAgeSeconds *float64 `json:"oldest_age_seconds"`
}

// TypeStats counts the rows of a business type that are not done.
type TypeStats struct {
	Type             string   `json:"type"`
	Pending          int64    `json:"pending"`
	Failed           int64    `json:"failed"`
	OldestAgeSeconds *float64 `json:"oldest_age_seconds"`
}

// ReasonStats counts the rows that were refused for a reason.
type ReasonStats struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// Duration is a time.Duration that is "1h30m" in JSON.
type Duration time.Duration

// MarshalText writes the text form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the text form.
func (d *Duration) UnmarshalText(text []byte) error {
	span, err := time.ParseDuration(string(text))
	if err != nil || span < 0 {
		return Usagef("%q is not a span of time such as 90s, 15m or 24h", text)
	}
	*d = Duration(span)
	return nil
}

// The limits of lists and orders.
const (
	DefaultMessages  = 50
	MaxMessages      = 1000
	DefaultChanges   = 100
	MaxChanges       = 10_000
	DefaultRepublish = 1000
	maxText          = 3072 // of any text that comes from outside; as much as a key can have
)

// Check returns a usage error for a filter that no row can fulfil because it is no text.
func (f MessageFilter) Check() error {
	for name, text := range map[string]string{"status": f.Status, "type": f.Type, "topic": f.Topic, "key": f.Key, "reason": f.Reason} {
		if err := checkText(name, text); err != nil {
			return err
		}
	}
	if f.OlderThan < 0 {
		return Usagef("older_than %s: must not be negative", time.Duration(f.OlderThan))
	}
	return nil
}

func checkText(name, text string) error {
	switch {
	case len(text) > maxText:
		return Usagef("%s: a text of %d bytes is longer than any, %d at most", name, len(text), maxText)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return Usagef("%s: it is no text in UTF-8", name)
	}
	return nil
}

// Check returns a usage error for what cannot be a page.
func (q MessageQuery) Check() error {
	if q.Limit < 1 || q.Limit > MaxMessages {
		return Usagef("limit %d: must be from 1 to %d", q.Limit, MaxMessages)
	}
	if err := checkText("table", q.Table); err != nil {
		return err
	}
	return q.MessageFilter.Check()
}

// Check returns a usage error for what cannot name a message.
func (r MessageRef) Check() error {
	if r.Ref == "" {
		return Usagef("name a message: its primary key, message id or business key")
	}
	if err := checkText("table", r.Table); err != nil {
		return err
	}
	return checkText("the name of the message", r.Ref)
}

// Check returns a usage error unless exactly one kind of choice is made, and fills in the limit.
func (o *MessageOrder) Check() error {
	if o.Limit == 0 {
		o.Limit = DefaultChanges
	}
	named := min(len(o.IDs), 1) + min(len(o.Rows), 1)
	if o.Filter != nil {
		named++
	}
	switch {
	case named != 1:
		return Usagef("name either ids (primary keys or message ids) or a filter, or with republish rows")
	case len(o.Rows) > 0 && !o.Republish:
		return Usagef("rows go with republish only: name ids")
	case len(o.Rows) > MaxChanges:
		return Usagef("%d rows are more than %d", len(o.Rows), MaxChanges)
	case o.Limit < 1 || o.Limit > MaxChanges:
		return Usagef("limit %d: must be from 1 to %d", o.Limit, MaxChanges)
	case len(o.IDs) > o.Limit:
		return Usagef("%d ids are more than the limit of %d", len(o.IDs), o.Limit)
	}
	for _, id := range o.IDs {
		if err := (MessageRef{Ref: id}).Check(); err != nil {
			return err
		}
	}
	if err := checkText("table", o.Table); err != nil || o.Filter == nil {
		return err
	}
	return o.Filter.Check()
}
