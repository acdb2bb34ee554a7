package producer

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxDelay is beyond what anybody plans: a delay that is longer is a mistake of units. It also keeps times below the year 2038,
// where FROM_UNIXTIME of many servers ends and answers NULL, which would mean at once.
const maxDelay = 366 * 24 * time.Hour

// row is one row of an INSERT.
type row struct {
	messageID string
	columns   []string // quoted
	values    []string // SQL: a placeholder, or an expression with or without some
	args      []any
	size      int // bytes, about
}

// builder makes a row of a message and keeps the first fault.
type builder struct {
	row
	table  *Table
	filled map[string]string // text by quoted column: one column may have several roles
	err    error
}

func (t *Table) row(m Message) (row, error) {
	b := builder{table: t, filled: map[string]string{}}
	b.id(m.ID)
	b.identity(m)
	b.text(BizType, m.BizType)
	b.text(Key, m.Key)
	b.topic(m.Topic)
	b.text(Tag, m.Tag)
	b.text(ShardingKey, m.ShardingKey)
	b.headers(m.Headers)
	b.body(m.Body)
	b.maxRetry(m.MaxRetry)
	b.due(m.Delay, m.DeliverAt)
	b.state()
	b.more(m.Columns)
	b.complete()
	return b.row, b.err
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

func (b *builder) add(column, value string, args ...any) {
	b.columns, b.values, b.args = append(b.columns, column), append(b.values, value), append(b.args, args...)
	b.size += 16
}

// has reports whether a role has a column; a value that is given without one is a fault.
func (b *builder) has(role Role, given any) bool {
	if b.table.quoted[role] == "" {
		b.fail("%s is given (%v), and the table has no column for it: map one in Options.Columns, or leave it out", role, given)
		return false
	}
	return true
}

// id is the primary key where the table does not number its rows.
func (b *builder) id(id int64) {
	switch {
	case id != 0 && b.has(ID, id):
		b.add(b.table.quoted[ID], "?", id)
	case id == 0 && slices.Contains(b.table.needs, ID):
		b.fail("id is 0, and the table does not number its rows: set Message.ID (or, where the column is AUTO_INCREMENT, take the role id out)")
	}
}

// identity sets the message id.
func (b *builder) identity(m Message) {
	if b.table.quoted[MessageID] == "" {
		b.derived(m)
		return
	}
	b.messageID = m.MessageID
	if b.messageID == "" && b.table.quoted[MessageID] == b.table.quoted[Key] {
		b.messageID = m.Key
	}
	id, ok := newUUID(), true
	if b.messageID != "" {
		id, ok = parseUUID(b.messageID)
	}
	switch {
	case b.table.binaryID && !ok:
		b.fail("message_id %q is no UUID, and the column takes nothing else", b.messageID)
	case b.table.binaryID:
		b.messageID = hex.EncodeToString(id[:]) // as the relay shows bytes
		b.filled[b.table.quoted[MessageID]] = b.messageID
		b.add(b.table.quoted[MessageID], "?", id[:])
	case b.messageID == "":
		b.messageID = uuidText(id)
		fallthrough
	default:
		b.text(MessageID, b.messageID)
	}
}

// derived is the message id that consumers see where the table has no column for one.
func (b *builder) derived(m Message) {
	b.messageID = m.BizType + ":" + m.Key
	if m.MessageID != "" && m.MessageID != b.messageID {
		b.fail("message_id %q is given, and the message id of this table is biz_type:key, %q", m.MessageID, b.messageID)
	}
	if strings.Contains(m.BizType, ":") {
		// a:b and c would be the same message id as a and b:c.
		b.fail("biz_type %q has a colon, which separates it from the key in the message id", m.BizType)
	}
}

// text is a value of one of the roles that read texts.
func (b *builder) text(role Role, value string) {
	if value == "" || !b.has(role, value) {
		return
	}
	column := b.table.quoted[role]
	if there, twice := b.filled[column]; twice {
		if there != value {
			b.fail("%s is %q, and its column %s holds another role too, with the value %q", role, value, column, there)
		}
		return
	}
	if limit := b.table.limits[role]; limit > 0 && utf8.RuneCountInString(value) > limit {
		b.fail("%s has %d characters, and the column %s takes %d", role, utf8.RuneCountInString(value), column, limit)
	}
	if !utf8.ValidString(value) {
		b.fail("%s is not UTF-8", role)
	}
	b.filled[column] = value
	b.add(column, "?", value)
	b.size += len(value)
}

func (b *builder) topic(topic string) {
	if topic != "" && b.table.quoted[Topic] == "" {
		b.fail("topic is given (%q), and no column is mapped to it: the relay makes the topic by its own rule (tables[].topic)", topic)
		return
	}
	rest, fits := strings.CutPrefix(topic, b.table.prefix)
	if topic != "" && (!fits || rest == "") {
		b.fail("topic %q does not begin with %q and go on behind it", topic, b.table.prefix)
	}
	b.text(Topic, rest)
}

func (b *builder) headers(headers map[string]string) {
	if len(headers) == 0 || !b.has(Headers, slices.Sorted(maps.Keys(headers))) {
		return
	}
	for name, value := range headers {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			b.fail("header %q is not UTF-8", name) // JSON would replace what it cannot hold
		}
	}
	text, err := json.Marshal(headers)
	if err != nil {
		b.fail("headers: %w", err)
	}
	b.add(b.table.quoted[Headers], "?", string(text))
	b.size += len(text)
}

// body is a string for a text column: the driver announces bytes as binary, which TEXT and JSON columns refuse.
func (b *builder) body(body []byte) {
	if body == nil {
		if slices.Contains(b.table.needs, Body) {
			b.fail("body is nil, and the column takes no NULL: an empty message is []byte{}")
		}
		return
	}
	if limit := b.table.limits[Body]; limit > 0 && len(body) > limit {
		b.fail("body has %d bytes, and the column %s takes %d (Options.Limits, where it takes more)", len(body), b.table.quoted[Body], limit)
	}
	b.size += len(body)
	switch {
	case b.table.binaryBody:
		b.add(b.table.quoted[Body], "?", body)
	case !utf8.Valid(body):
		b.fail("body is not UTF-8, and the column %s is a text type (Options.BinaryBody, where it is a BLOB type)", b.table.quoted[Body])
	default:
		b.add(b.table.quoted[Body], "?", string(body))
	}
}

func (b *builder) maxRetry(n int) {
	switch {
	case n < 0:
		b.fail("max_retry is %d", n)
	case n > 0 && b.has(MaxRetry, n):
		b.add(b.table.quoted[MaxRetry], "?", n)
	}
}

// due is the time of a delayed message. NULL is at once.
func (b *builder) due(delay time.Duration, at time.Time) {
	if delay == 0 && at.IsZero() {
		return
	}
	switch {
	case delay != 0 && !at.IsZero():
		b.fail("delay (%v) and deliver-at (%v) are given: one of them is enough", delay, at)
	case delay < 0:
		b.fail("delay is negative: %v", delay)
	case delay > maxDelay || time.Until(at) > maxDelay:
		b.fail("delay %v, deliver-at %v: that is more than a year", delay, at)
	case !at.IsZero() && at.Unix() <= 0: // FROM_UNIXTIME has no such time
		b.fail("deliver-at is %v", at)
	}
	given := any(at)
	if delay != 0 {
		given = delay
	}
	if !b.has(DueAt, given) || b.err != nil {
		return
	}
	column, t := b.table.quoted[DueAt], b.table
	switch {
	case delay > 0:
		b.add(column, t.later, delay.Microseconds())
	case t.zone == nil:
		b.add(column, t.at, at.Unix(), at.Nanosecond()/1000)
	default:
		b.add(column, t.at, at.In(t.zone).Format("2006-01-02 15:04:05.000000"))
	}
}

// state is what a new row starts with. Columns are named although most tables have defaults: some do not.
func (b *builder) state() {
	for _, c := range []struct {
		role  Role
		value string
		args  []any
	}{
		{Status, "?", []any{b.table.codes[Pending]}},
		{RetryCount, "0", nil},
		{LockVersion, "0", nil},
		{CreatedAt, b.table.now, nil},
		{UpdatedAt, b.table.now, nil},
		{CreatedBy, "?", []any{b.table.writer}},
		{UpdatedBy, "?", []any{b.table.writer}},
	} {
		if column := b.table.quoted[c.role]; column != "" {
			b.add(column, c.value, c.args...)
		}
	}
}

// complete looks for what is missing: a column may have been filled by another role of it.
func (b *builder) complete() {
	for _, role := range b.table.needs {
		if slices.Contains(texts, role) && b.filled[b.table.quoted[role]] == "" {
			b.fail("%s is empty, and the table needs it", role)
		}
	}
}

// more adds the columns that have no role.
func (b *builder) more(values map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch role := b.table.taken[strings.ToLower(name)]; {
		case !isName(name):
			b.fail("%q is no name of a column", name)
		case role:
			b.fail("column %s has a role: set the message's own field", name)
		default:
			b.add(quote(name), "?", values[name])
		}
	}
}
