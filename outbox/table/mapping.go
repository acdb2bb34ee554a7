package table

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// columnNames are the roles as the configuration writes them.
var columnNames = [columnCount]string{
	ID: "id", MessageID: "message_id", BizType: "biz_type", Key: "key", Topic: "topic", Tag: "tag",
	ShardingKey: "sharding_key", Body: "body", Headers: "headers", Partition: "partition", StatusCode: "status",
	RetryCount: "retry_count", MaxRetry: "max_retry", NextRetryTime: "next_retry_time", LastExecTime: "last_exec_time",
	FailReason: "fail_reason", CreatedAt: "created_at", BrokerMessageID: "broker_message_id", SentAt: "sent_at",
	LockVersion: "lock_version", UpdatedBy: "updated_by", UpdatedAt: "updated_at",
}

// String returns the role as the configuration writes it.
func (c Column) String() string { return columnNames[c] }

// ParseColumn reads a role.
func ParseColumn(name string) (Column, error) {
	if i := slices.Index(columnNames[:], name); i >= 0 {
		return Column(i), nil
	}
	return 0, fmt.Errorf("column role %q is unknown: use one of %s", name, strings.Join(columnNames[:], ", "))
}

// Mapping says which table is an outbox and how it is read. It comes from Preset; single fields are then overridden: one for
// each option of a table in the configuration.
type Mapping struct {
	Schema, Name string
	Preset       string

	// Columns are names by role. Roles that are missing are not used: what the table cannot do then has one replacement each,
	// see lacks.go.
	Columns map[Column]string
	// Spellings are other names of a preset's columns: the first that the table has, and that plays no other role, is taken.
	Spellings map[Column][]string
	// IfPresent are the roles whose column a table of this preset may lack: then the role is not used. What the operator
	// maps himself must be there.
	IfPresent map[Column]bool
	// Topic makes the topic of the column's value; nil: the value is the topic.
	Topic *TopicRule
	// Codes are the texts of Pending, Sending, Sent and Failed in the status column; Sending and Failed may be missing. Every
	// other code is outbox.Held: such rows are never touched.
	Codes map[outbox.Status]string
	// States are codes of the table's consumers by name (consumed, suspended): Held as well, and counted by name.
	States map[string]string
	// MessageIDHeader is one more header that carries the message id; "" for none.
	MessageIDHeader string
	// BizTypeHeader is one more header that carries the value of BizType; "" for none.
	BizTypeHeader string
	// LogOnly lets the table do without a status, see Table.LogOnly.
	LogOnly bool
	// TimeZone of the DATETIME columns: an offset like "+08:00" or a name that the server has. "" is the server's default
	// zone. TIMESTAMP columns have none and need none.
	TimeZone string
	// Grace is how long the application has to publish a row itself; 0: the relay publishes at once.
	Grace time.Duration
	// Ordered is for a table whose rows of one key are published one after the other.
	Ordered bool
	// Retry says how often and when a refused row of this table is sent: as its owners do by the preset, or by the configuration.
	Retry outbox.Retry
	// FailedEvery is how long a row is FAILED before it is tried again; 0: as the configuration says for all tables.
	FailedEvery time.Duration
	// Redeliver says when SENT rows go out again.
	Redeliver Redeliver
	// Expiries say which final rows leave the table.
	Expiries []Expiry
	// Writer is what goes into the UpdatedBy column.
	Writer string
}

// Redeliver says when rows go out again that no consumer has finished. The zero value: never.
type Redeliver struct {
	After time.Duration // they have been SENT for this time
	Until string        // the state of the consumers that ends it, a name of Mapping.States
	Max   int           // how often a row goes out again
	Query string        // the address of the service that is asked first which messages are done; "" for none
}

// Set maps one role to a column; "" takes the role out.
func (m *Mapping) Set(role Column, name string) {
	delete(m.IfPresent, role)
	delete(m.Spellings, role)
	if name == "" {
		delete(m.Columns, role)
		return
	}
	m.Columns[role] = name
}

// SetCode maps a code to a status, or to the name of a consumers' state; "" takes it out.
func (m *Mapping) SetCode(name, code string) {
	for _, status := range statuses {
		switch {
		case name != status.String():
		case code == "":
			delete(m.Codes, status)
			return
		default:
			m.Codes[status] = code
			return
		}
	}
	if code == "" {
		delete(m.States, name)
		return
	}
	m.States[name] = code
}

// SetTopic makes the topic follow from a rule.
func (m *Mapping) SetTopic(rule TopicRule) {
	m.Set(Topic, rule.Column)
	m.Topic = &rule
}

// needed are the roles without which there is no row to publish.
var needed = []Column{ID, Body, StatusCode}

// logOnly reports whether the table has no status.
func (m Mapping) logOnly() bool { return m.LogOnly && m.Columns[StatusCode] == "" }

// written are the roles that appear in a SET.
var written = []Column{
	StatusCode, RetryCount, NextRetryTime, LastExecTime, FailReason, BrokerMessageID, SentAt, LockVersion, UpdatedBy, UpdatedAt,
}

// check returns the faults that can be seen without a server.
func (m Mapping) check() (faults []string) {
	for _, role := range needed {
		if m.Columns[role] == "" && (role != StatusCode || !m.LogOnly) {
			faults = append(faults, fmt.Sprintf("no column is mapped to %s, which is needed", role))
		}
	}
	if m.Columns[Topic] == "" && (m.Topic == nil || m.Topic.Column != "") {
		faults = append(faults, "no column is mapped to topic, and tables[].topic names none: set one of them")
	}
	if m.Ordered && m.Columns[Key] == "" && m.Columns[ShardingKey] == "" {
		faults = append(faults, "ordering: key needs a key: map a column to key or sharding_key, or set tables[].ordering to none")
	}
	if m.Columns[MessageID] == "" && (m.Columns[BizType] == "" || m.Columns[Key] == "") {
		faults = append(faults, "neither message_id nor both of biz_type and key are mapped: a row has no stable message id")
	}
	if m.logOnly() {
		slices.Sort(faults)
		return append(slices.Compact(faults), m.checkLogOnly()...)
	}
	for _, status := range []outbox.Status{outbox.Pending, outbox.Sent} {
		if m.Codes[status] == "" {
			faults = append(faults, fmt.Sprintf("no status code is mapped to %s, which is needed", status))
		}
	}
	seen := map[string]string{}
	for _, one := range m.Words() {
		if twice, ok := seen[strings.ToLower(one.Code)]; ok {
			faults = append(faults, fmt.Sprintf("status code %q is mapped to %s and to %s", one.Code, twice, one.Name))
		}
		seen[strings.ToLower(one.Code)] = one.Name
	}
	slices.Sort(faults)
	return slices.Compact(faults)
}

// shared returns the faults of columns that play several roles. Any number of roles may read one column; a role that is
// written would change what the others read.
func (m Mapping) shared() (faults []string) {
	for _, role := range written {
		for other, name := range m.Columns {
			if other != role && name != "" && strings.EqualFold(name, m.Columns[role]) && (other < role || !slices.Contains(written, other)) {
				faults = append(faults, fmt.Sprintf("column %s has two roles, %s and %s, and the relay writes %s: it would change the other", name, other, role, role))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// Word is a code of the status column and what it stands for.
type Word struct{ Name, Code string }

// Words lists every code that is mapped, the relay's own first.
func (m Mapping) Words() (list []Word) {
	for _, status := range statuses {
		if code := m.Codes[status]; code != "" {
			list = append(list, Word{status.String(), code})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.States)) {
		list = append(list, Word{name, m.States[name]})
	}
	return list
}

// statuses are those that have a code.
var statuses = []outbox.Status{outbox.Pending, outbox.Sending, outbox.Sent, outbox.Failed}

// parseOffset reads "+08:00".
func parseOffset(text string) (*time.Location, bool) {
	if len(text) != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':' {
		return nil, false
	}
	hours, err1 := strconv.Atoi(text[1:3])
	minutes, err2 := strconv.Atoi(text[4:])
	if err1 != nil || err2 != nil || hours > 14 || minutes > 59 {
		return nil, false
	}
	seconds := hours*3600 + minutes*60
	if text[0] == '-' {
		seconds = -seconds
	}
	return time.FixedZone(text, seconds), true
}
