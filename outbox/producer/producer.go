package producer

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Message is what is to be published. A field that is not set is NULL or the column's default. A field that is set and that
// the layout has no column for is an error.
type Message struct {
	Topic string
	// Key is the business key. Messages of one key go to one partition or queue, in commit order.
	Key     string
	BizType string
	// Body is nil for SQL NULL, where the column takes it, and empty for an empty message.
	Body []byte
	// MessageID is what consumers drop copies by. Where the layout has a column for it and it is not given, a UUID of version 7
	// is made. Where the message id is BizType:Key there is nothing to give.
	MessageID string
	// ID is the primary key, for layouts whose table does not number its rows.
	ID int64

	Tag         string
	ShardingKey string // chooses partition or queue in place of Key
	Headers     map[string]string
	MaxRetry    int // attempts; 0 is the default of the column or of the relay's configuration

	// Delay and DeliverAt make a delayed message; one of them at most. Delay counts from the database's now.
	Delay     time.Duration
	DeliverAt time.Time

	// Columns are further columns of the table, with their values, such as a tenant. Columns of a role cannot be among them.
	Columns map[string]any
}

// Options say where a table differs from its preset. The zero value is the preset as it is.
type Options struct {
	// Table is the name, or schema.table.
	Table string
	// Columns are names by role; "" takes the role out. Tag: "msg_tag" adds a column that the preset does not have.
	Columns map[Role]string
	// Limits are the longest values by role, in characters, for Body in bytes; 0 is no limit. A longer value is an error; a server
	// without strict mode would cut it.
	Limits map[Role]int
	// Pending is the status of a new row, such as a word in your language.
	Pending string
	// Codes are further codes of the status by state, as in tables[].codes of the relay: for MarkSent and MarkFailed.
	Codes map[State]string
	// Writer goes into created_by and updated_by; "" is "producer".
	Writer string
	// TimeZone of the DATETIME columns is an offset like "+08:00", the same as tables[].time_zone of the relay. "" is the zone of
	// the connection. Leave it "" for TIMESTAMP columns: the server converts those.
	TimeZone string
	// TopicPrefix of DebeziumOutbox in place of "outbox.event.": the column holds the rest of the topic.
	TopicPrefix string
	// BinaryBody says that the body column is a BLOB type: it takes bytes that are no text.
	BinaryBody bool
	// BinaryID says that the message id column is BINARY(16). Message ids are UUIDs then.
	BinaryID bool
}

// Execer is a *sql.Tx, or whatever passes statements on to one.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Table is an outbox table. It may be used by many goroutines at once.
type Table struct {
	layout
	name   string          // quoted
	quoted map[Role]string // columns
	taken  map[string]bool // columns with a role, in lower case
	writer string

	now, later, at       string         // SQL: the time now, after a number of microseconds, at a time
	zone                 *time.Location // of DATETIME columns; nil for the connection's
	binaryBody, binaryID bool
}

// New returns the table of a preset. It talks to no server: whether the table is as it says shows with the first Insert.
func New(preset Preset, options Options) (*Table, error) {
	l, known := layouts[preset]
	if !known {
		return nil, fmt.Errorf("outbox preset %q is unknown: use one of %v", preset, Presets())
	}
	columns, limits := maps.Clone(l.columns), map[Role]int{}
	maps.Copy(columns, options.Columns)
	maps.Copy(limits, l.limits)
	maps.Copy(limits, options.Limits)
	l.columns, l.limits = columns, limits
	l.table, l.prefix = cmp.Or(options.Table, l.table), cmp.Or(options.TopicPrefix, l.prefix)
	l.codes = maps.Clone(l.codes)
	if l.codes == nil {
		l.codes = map[State]string{}
	}
	maps.Copy(l.codes, options.Codes)
	if options.Pending != "" {
		l.codes[Pending] = options.Pending
	}
	// A column that is taken out is one that the table fills by itself.
	l.needs = slices.DeleteFunc(slices.Clone(l.needs), func(r Role) bool { return columns[r] == "" })
	t := &Table{
		layout: l, quoted: map[Role]string{}, taken: map[string]bool{}, writer: cmp.Or(options.Writer, "producer"),
		binaryBody: options.BinaryBody, binaryID: options.BinaryID,
	}
	if err := t.names(); err != nil {
		return nil, fmt.Errorf("outbox table %s: %w", l.table, err)
	}
	if err := t.clock(options.TimeZone); err != nil {
		return nil, fmt.Errorf("outbox table %s: %w", l.table, err)
	}
	return t, nil
}

// names quotes the names of table and columns.
func (t *Table) names() (err error) {
	if t.name, err = quoted(t.table); err != nil {
		return err
	}
	written := map[string]Role{}
	for _, role := range roles {
		name := t.columns[role]
		if name == "" {
			continue
		}
		if !isName(name) {
			return fmt.Errorf("column %q of %s is no name that MySQL takes", name, role)
		}
		other, twice := written[strings.ToLower(name)]
		if twice && !(slices.Contains(texts, role) && slices.Contains(texts, other)) {
			return fmt.Errorf("column %s has two roles, %s and %s, which are never the same value", name, other, role)
		}
		written[strings.ToLower(name)] = role
		t.quoted[role], t.taken[strings.ToLower(name)] = quote(name), true
	}
	for role := range t.columns {
		if !slices.Contains(roles, role) {
			return fmt.Errorf("role %q is unknown: use one of %v", role, roles)
		}
	}
	if t.columns[Body] == "" {
		return errors.New("no column is mapped to body")
	}
	if t.columns[MessageID] == "" && (t.columns[BizType] == "" || t.columns[Key] == "") {
		return errors.New("neither message_id nor both of biz_type and key are mapped: a row has no message id")
	}
	return nil
}

// clock chooses how times are written. UTC_TIMESTAMP is the same in every connection; NOW is the time in the connection's zone.
func (t *Table) clock(zone string) error {
	if zone == "" {
		t.now, t.later, t.at = "NOW(3)", "NOW(3) + INTERVAL ? MICROSECOND", "FROM_UNIXTIME(?) + INTERVAL ? MICROSECOND"
		return nil
	}
	at, err := time.Parse("-07:00", zone)
	if err != nil {
		return fmt.Errorf("time zone %q is no offset like +08:00", zone)
	}
	_, seconds := at.Zone()
	t.zone = time.FixedZone(zone, seconds)
	t.now = fmt.Sprintf("UTC_TIMESTAMP(3) + INTERVAL %d SECOND", seconds)
	t.later = fmt.Sprintf("UTC_TIMESTAMP(3) + INTERVAL %d SECOND + INTERVAL ? MICROSECOND", seconds)
	t.at = "?"
	return nil
}

// Bounds of one statement: far below the smallest max_allowed_packet that is in use (4 MiB), but for a message that is larger
// by itself.
const (
	maxRows  = 500
	maxBytes = 1 << 20
)

// Insert inserts one message and returns its message id. A message id that is there already is the error of the server.
func (t *Table) Insert(ctx context.Context, tx Execer, m Message) (messageID string, err error) {
	ids, err := t.InsertAll(ctx, tx, []Message{m})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// InsertAll inserts messages in their order, many with one statement, and returns their message ids. All are checked before
// the first statement. When a statement fails, roll the transaction back: earlier ones have inserted rows.
func (t *Table) InsertAll(ctx context.Context, tx Execer, messages []Message) (messageIDs []string, err error) {
	rows, ids := make([]row, len(messages)), make([]string, len(messages))
	for i, m := range messages {
		if rows[i], err = t.row(m); err != nil {
			return nil, fmt.Errorf("insert into %s: message %d of %d: %w; nothing was inserted", t.table, i+1, len(messages), err)
		}
		ids[i] = rows[i].messageID
	}
	for len(rows) > 0 {
		n := statement(rows)
		query, args := t.insert(rows[:n])
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return nil, fmt.Errorf("insert into %s: %w", t.table, err)
		}
		rows = rows[n:]
	}
	return ids, nil
}

// statement says how many of the rows go into one statement: those with the columns of the first, within the bounds.
func statement(rows []row) int {
	size := rows[0].size
	for n := 1; n < min(len(rows), maxRows); n++ {
		size += rows[n].size
		if size > maxBytes || !slices.Equal(rows[n].columns, rows[0].columns) || !slices.Equal(rows[n].values, rows[0].values) {
			return n
		}
	}
	return min(len(rows), maxRows)
}

func (t *Table) insert(rows []row) (query string, args []any) {
	values := "(" + strings.Join(rows[0].values, ", ") + ")"
	var b strings.Builder
	b.WriteString("INSERT INTO " + t.name + " (" + strings.Join(rows[0].columns, ", ") + ") VALUES ")
	for i, r := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(values)
		args = append(args, r.args...)
	}
	return b.String(), args
}
