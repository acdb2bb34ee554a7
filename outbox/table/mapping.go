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
	LockVersion: "lock_version", UpdatedBy: "updated_by",
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

// Mapping says which table is an outbox and how it is read. It comes from Preset; single fields are then overridden.
type Mapping struct {
	Schema, Name string
	Preset       string

	// Columns are names by role. Roles that are missing are not used.
	Columns map[Column]string
	// IfPresent are the roles whose column a table of this preset may lack: then the role is not used. What the operator
	// maps himself must be there.
	IfPresent map[Column]bool
	// Codes are the texts of Pending, Sending, Sent and Failed in the status column. Every other code is outbox.Held:
	// such rows are never touched.
	Codes map[outbox.Status]string
	// TimeZone of the DATETIME columns: an offset like "+08:00" or a name that the server knows. "" is the server's default
	// zone. TIMESTAMP columns have none and need none.
	TimeZone string
	// Retry is what is different from the configuration's retry for rows of this table.
	Retry outbox.Retry
	// Writer is what goes into the UpdatedBy column.
	Writer string
}

// Set maps one role to a column; "" takes the role out.
func (m *Mapping) Set(role Column, name string) {
	delete(m.IfPresent, role)
	if name == "" {
		delete(m.Columns, role)
		return
	}
	m.Columns[role] = name
}

// presets are the layouts people have. A preset here has its DDL in package migrations.
var presets = map[string]Mapping{
	"t_local_message": {
		Columns: map[Column]string{
			ID: "id", BizType: "biz_type", Key: "biz_key", Topic: "topic", Tag: "tag", ShardingKey: "sharding_key",
			Body: "message_body", Headers: "headers", StatusCode: "status", RetryCount: "retry_count", MaxRetry: "max_retry",
			NextRetryTime: "next_retry_time", LastExecTime: "last_exec_time", FailReason: "fail_reason", CreatedAt: "created_at",
			UpdatedBy: "updated_by",
		},
	},
	"order-chain": {
		Columns: map[Column]string{
			ID: "id", MessageID: "message_id", BizType: "business_type", Key: "business_id", Topic: "topic", Tag: "tag",
			ShardingKey: "sharding_key", Body: "message_body", Headers: "headers", StatusCode: "status",
			RetryCount: "retry_count", MaxRetry: "max_retry", NextRetryTime: "next_retry_time", LastExecTime: "last_exec_time",
			FailReason: "fail_reason", CreatedAt: "created_at", UpdatedBy: "updated_by",
		},
	},
}

// Presets lists the names that Preset knows.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset returns a fresh mapping; Schema and Name are the caller's to set.
func Preset(name string) (Mapping, error) {
	p, ok := presets[name]
	if !ok {
		return Mapping{}, fmt.Errorf("table preset %q is unknown: use one of %s", name, strings.Join(Presets(), ", "))
	}
	return Mapping{
		Preset:  name,
		Columns: maps.Clone(p.Columns),
		IfPresent: map[Column]bool{
			Tag: true, ShardingKey: true, Headers: true, MaxRetry: true, CreatedAt: true, UpdatedBy: true,
		},
		Codes: map[outbox.Status]string{
			outbox.Pending: "0", outbox.Sending: "1", outbox.Sent: "2", outbox.Failed: "3",
		},
		Writer: "canal-outbox",
	}, nil
}

// needed are the roles without which the states of a row cannot be kept.
var needed = []Column{ID, Topic, Body, StatusCode, RetryCount, NextRetryTime, LastExecTime, FailReason}

// written are the roles that appear in a SET.
var written = []Column{
	StatusCode, RetryCount, NextRetryTime, LastExecTime, FailReason, BrokerMessageID, SentAt, LockVersion, UpdatedBy,
}

// check returns the faults that can be seen without a server.
func (m Mapping) check() (faults []string) {
	for _, role := range needed {
		if m.Columns[role] == "" {
			faults = append(faults, fmt.Sprintf("no column is mapped to %s, which is needed", role))
		}
	}
	if m.Columns[MessageID] == "" && (m.Columns[BizType] == "" || m.Columns[Key] == "") {
		faults = append(faults, "neither message_id nor both of biz_type and key are mapped: a row has no stable message id")
	}
	// Any number of roles may read one column. A role that is written would change what the others read.
	for _, role := range written {
		for other, name := range m.Columns {
			if other != role && name != "" && strings.EqualFold(name, m.Columns[role]) && (other < role || !slices.Contains(written, other)) {
				faults = append(faults, fmt.Sprintf("column %s has two roles, %s and %s, and the relay writes %s: it would change the other", name, other, role, role))
			}
		}
	}
	seen := map[string]outbox.Status{}
	for _, status := range statuses {
		code, ok := m.Codes[status]
		if !ok || code == "" {
			faults = append(faults, fmt.Sprintf("no status code is mapped to %s, which is needed", status))
		} else if twice, ok := seen[strings.ToLower(code)]; ok {
			faults = append(faults, fmt.Sprintf("status code %q is mapped to %s and to %s", code, twice, status))
		}
		seen[strings.ToLower(code)] = status
	}
	slices.Sort(faults)
	return slices.Compact(faults)
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
