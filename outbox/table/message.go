package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Message builds the message of a row from the values of Reads, in that order. The values may be reused afterwards: the
// strings are copied into one allocation and the body into another. An error means that the row cannot be published as it
// is shown; it names the column, never a value. Path, Claim and the times of arrival are the caller's to set.
//
// A column that the row image does not show has its constant default, or else is an error, because a value that is not
// known must not be published. The status is then PENDING: an INSERT that does not name it means a new row (A25).
func (t *Table) Message(values []Value) (*outbox.Message, error) {
	if len(values) != len(t.reads) {
		return nil, fmt.Errorf("table %s: a row of %d values, %d were asked for", t.name, len(values), len(t.reads))
	}
	r := row{table: t, values: values}
	m := &outbox.Message{Identity: outbox.Identity{Table: t.name}, Partition: outbox.NoPartition, MaxRetry: -1, Grace: t.mapping.Grace, LogOnly: t.LogOnly()}
	r.strings(m)
	r.body(m)
	m.Headers = r.headers()
	if name := t.mapping.MessageIDHeader; name != "" {
		m.Headers = append(slices.DeleteFunc(m.Headers, func(h outbox.Header) bool { return h.Name == name }), outbox.Header{Name: name, Value: m.MessageID})
	}
	if name := t.mapping.BizTypeHeader; name != "" && m.BizType != "" {
		m.Headers = append(slices.DeleteFunc(m.Headers, func(h outbox.Header) bool { return h.Name == name }), outbox.Header{Name: name, Value: m.BizType})
	}
	r.state(m)
	if r.err != nil && t.LogOnly() && !r.unsure && m.MessageID != "" {
		m.Fault = r.err.Error()
		return m, nil
	}
	if r.err != nil {
		return nil, fmt.Errorf("table %s: %w", t.name, r.err)
	}
	return m, nil
}

// row reads values by role and keeps the first error.
type row struct {
	table  *Table
	values []Value
	err    error
	unsure bool // a value is not known: another look at the row could tell
}

func (r *row) fail(role Column, what string) {
	if r.err == nil {
		r.err = fmt.Errorf("column %s (%s): %s", r.table.ColumnName(role), role, what)
	}
}

// get returns the value of a role; Null when nothing plays it.
func (r *row) get(role Column) Value {
	i := r.table.at[role]
	if i < 0 {
		return Value{Null: true}
	}
	v := r.values[i]
	if v.Absent {
		v = r.table.columns[role].fallback
		switch {
		case v.Absent && role == StatusCode:
			return Value{Data: []byte(r.table.mapping.Codes[outbox.Pending])}
		case v.Absent && role == CreatedAt:
			return Value{Null: true} // informative only
		}
		if v.Absent || role == ID || role == MessageID || role == Topic || role == Body && !r.table.LogOnly() {
			r.unsure = true
			r.fail(role, "the row image does not show it")
		}
	}
	if v.Fault != "" {
		r.fail(role, v.Fault)
	}
	return v
}

func (r *row) filled(role Column) []byte {
	v := r.get(role)
	if v.Null || len(v.Data) == 0 {
		r.fail(role, "it is empty, and without it the row is no message")
	}
	return v.Data
}

// strings fills every string field from one backing string.
func (r *row) strings(m *outbox.Message) {
	id, topic := r.table.KeyText(ID, r.filled(ID)), r.topic()
	if r.table.columns[ID].Unsigned && len(id) > 0 && id[0] == '-' {
		r.fail(ID, "it is negative, the column is unsigned: the log was decoded without its signedness (A24)")
	}
	biz, key := r.get(BizType).Data, r.table.KeyText(Key, r.get(Key).Data)
	tag, sharding := r.get(Tag).Data, r.get(ShardingKey).Data
	var own []byte
	if r.table.Has(MessageID) {
		own = r.table.KeyText(MessageID, r.filled(MessageID))
	} else {
		r.filled(BizType)
		r.filled(Key)
	}
	var b strings.Builder
	b.Grow(len(id)*2 + len(topic) + (len(biz)+len(key))*2 + len(tag) + len(sharding) + len(own) + 2)
	take := func(parts ...[]byte) string {
		from := b.Len()
		for _, part := range parts {
			b.Write(part)
		}
		return b.String()[from:]
	}
	m.ID, m.Topic, m.BizType, m.Key, m.Tag = take(id), take(topic), take(biz), take(key), take(tag)
	m.ShardingKey = m.Key
	if r.table.Has(ShardingKey) && len(sharding) > 0 {
		m.ShardingKey = take(sharding)
	}
	switch {
	case r.table.Has(MessageID):
		m.MessageID = take(own)
	case r.table.appendID:
		m.MessageID = take(biz, separator, key, separator, id)
	default:
		m.MessageID = take(biz, separator, key)
	}
}

var separator = []byte(":")

// topic is the value of the column, or what the mapping's rule makes of it.
func (r *row) topic() []byte {
	rule := r.table.mapping.Topic
	if rule == nil {
		return r.filled(Topic)
	}
	var value []byte
	if r.table.Has(Topic) {
		value = r.filled(Topic)
	}
	topic, err := rule.apply(value)
	if err != nil {
		r.fail(Topic, err.Error())
	}
	return []byte(topic)
}

func (r *row) body(m *outbox.Message) {
	v := r.get(Body)
	if !v.Null {
		m.Body = make([]byte, len(v.Data))
		copy(m.Body, v.Data)
	}
}

// state fills what the decisions are made from.
func (r *row) state(m *outbox.Message) {
	if !m.LogOnly {
		code := r.get(StatusCode)
		m.Status = r.table.Status(code.Data, code.Null)
	}
	if n, ok := r.number(RetryCount); ok {
		m.RetryCount = int(n)
	}
	if n, ok := r.number(MaxRetry); ok && n >= 0 {
		m.MaxRetry = int(n)
	}
	if n, ok := r.number(Partition); ok {
		if n < 0 || n > 1<<31-1 {
			r.fail(Partition, "it is out of range")
		}
		m.Partition = int32(n)
	}
	m.DueAt, m.CreatedAt = r.time(NextRetryTime), r.time(CreatedAt)
}

func (r *row) number(role Column) (int64, bool) {
	v := r.get(role)
	if v.Null {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v.Data), 10, 64)
	if err != nil {
		r.fail(role, "it is not a number")
	}
	return n, err == nil
}

func (r *row) time(role Column) time.Time {
	v := r.get(role)
	if v.Null || v.Absent {
		return time.Time{}
	}
	zone := time.UTC
	if r.table.columns[role].DataType != "timestamp" {
		zone = r.table.zone.Load()
	}
	at, ok := ParseTime(v.Data, zone)
	if !ok {
		r.fail(role, "it is not a time")
	}
	return at
}

// ParseTime reads "2026-01-02 03:04:05" with up to six more digits. The zero date, which some schemas use for "none", is
// the zero time.
func ParseTime(text []byte, zone *time.Location) (time.Time, bool) {
	if len(text) < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':' {
		return time.Time{}, false
	}
	fraction := text[19:]
	if len(fraction) > 0 && (fraction[0] != '.' || len(fraction) > 7) {
		return time.Time{}, false
	}
	nanos, ok := 0, true
	if len(fraction) > 1 {
		nanos, ok = digits(fraction[1:])
		for i := len(fraction); i < 10; i++ {
			nanos *= 10
		}
	}
	year, ok1 := digits(text[:4])
	month, ok2 := digits(text[5:7])
	day, ok3 := digits(text[8:10])
	hour, ok4 := digits(text[11:13])
	minute, ok5 := digits(text[14:16])
	second, ok6 := digits(text[17:19])
	if !ok || !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 {
		return time.Time{}, false
	}
	if month == 0 || day == 0 {
		return time.Time{}, true
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, nanos, zone), true
}

func digits(text []byte) (n int, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// headers reads the JSON object. A value that is not a string keeps its JSON text, without spaces.
func (r *row) headers() []outbox.Header {
	v := r.get(Headers)
	if v.Null || len(bytes.TrimSpace(v.Data)) == 0 {
		return nil
	}
	headers, err := parseHeaders(v.Data)
	if err != nil {
		r.fail(Headers, "it is not a JSON object") // the cause would quote the value
	}
	return headers
}

var errNotObject = errors.New("not a JSON object")

func parseHeaders(data []byte) ([]outbox.Header, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, errNotObject
	}
	var headers []outbox.Header
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, err
		}
		h := outbox.Header{Name: fmt.Sprint(name)}
		if raw[0] == '"' {
			err = json.Unmarshal(raw, &h.Value)
		} else {
			var compact bytes.Buffer
			err = json.Compact(&compact, raw)
			h.Value = compact.String()
		}
		if err != nil {
			return nil, err
		}
		headers = append(headers, h)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errNotObject
	}
	return headers, nil
}
