package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// layout is a preset: the columns of a table that people have, as "role: name | other spelling".
type layout struct {
	columns   map[Column]string
	ifPresent []Column
	codes     map[outbox.Status]string
	states    map[string]string
	header    string       // Mapping.MessageIDHeader
	logOnly   bool         // Mapping.LogOnly
	topic     string       // template of Mapping.Topic; "" for none
	biz       string       // Mapping.BizTypeHeader
	retry     outbox.Retry // what the owners' own code does that differs from defaultRetry
}

// defaultRetry is what a preset does not say.
var defaultRetry = outbox.Retry{Max: 5, Backoff: outbox.Backoff{Base: time.Second, Max: 2 * time.Hour}}

// Spellings that several layouts share.
const (
	spelledCreated = "gmt_create | create_time | created_at"
	spelledUpdated = "gmt_modified | update_time | updated_at"
	spelledDue     = "next_retry_time | next_retry_at"
	spelledLast    = "last_exec_time | last_execute_time | last_retry_time"
	spelledBy      = "updated_by | update_by"
	spelledLimit   = "max_retry | max_retry_count"
)

// numbers are the codes of t_local_message and its kin.
var numbers = map[outbox.Status]string{outbox.Pending: "0", outbox.Sending: "1", outbox.Sent: "2", outbox.Failed: "3"}

// localMessage is t_local_message as its owners have it, with the additional columns of the relay's own table (preset outbox).
func localMessage(created, updated string) layout {
	return layout{codes: numbers, columns: map[Column]string{
		ID: "id", BizType: "biz_type", Key: "biz_key", Topic: "topic", Tag: "tag", ShardingKey: "sharding_key",
		Body: "message_body", Headers: "headers", StatusCode: "status", RetryCount: "retry_count", MaxRetry: spelledLimit,
		NextRetryTime: spelledDue, LastExecTime: spelledLast, FailReason: "fail_reason", CreatedAt: created,
		UpdatedAt: updated, UpdatedBy: spelledBy,
	}}
}

// presets are the layouts people have. A preset here has its DDL in package migrations.
var presets = map[string]layout{
	"outbox":          localMessage("created_at | gmt_create | create_time", "updated_at | gmt_modified | update_time"),
	"t_local_message": localMessage(spelledCreated, spelledUpdated),
	"message-state": {
		columns: map[Column]string{
			ID: "id", BizType: "message_type", Key: "message_key", Topic: "topic", Body: "message_body", StatusCode: "state | status",
			RetryCount: "retry_count", NextRetryTime: "next_retry_at | next_retry_time", LastExecTime: "last_retry_time | last_exec_time | last_execute_time",
			FailReason: "fail_reason", BrokerMessageID: "message_id", LockVersion: "lock_version", CreatedAt: spelledCreated, UpdatedAt: spelledUpdated,
			MaxRetry: spelledLimit, UpdatedBy: spelledBy,
		},
		codes:  map[outbox.Status]string{outbox.Pending: "pending", outbox.Sent: "sent", outbox.Failed: "failed"},
		states: map[string]string{"consumed": "consumed", "suspended": "suspended"},
		retry:  outbox.Retry{Max: 10, Sends: true, Backoff: outbox.Backoff{Schedule: []time.Duration{10 * time.Minute}}},
	},
	"local_message_table": {
		columns: map[Column]string{
			ID: "id", MessageID: "message_id", Key: "message_id", Topic: "topic", Body: "content", StatusCode: "state | status",
			RetryCount: "retry_count", MaxRetry: "max_retry_count | max_retry", NextRetryTime: spelledDue, CreatedAt: "create_time | gmt_create | created_at",
			UpdatedAt: "update_time | gmt_modified | updated_at", UpdatedBy: spelledBy,
		},
		codes:  map[outbox.Status]string{outbox.Pending: "0", outbox.Sent: "1"},
		states: map[string]string{"consumed": "2"},
		retry: outbox.Retry{Backoff: outbox.Backoff{Schedule: []time.Duration{
			time.Minute, 5 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
		}}},
	},
	"local_message": {
		columns: map[Column]string{
			ID: "message_id", MessageID: "message_id", Key: "message_id", BizType: "event_type", Topic: "event_type", Body: "payload",
			StatusCode: "status", RetryCount: "retry_count", CreatedAt: "created_at | create_time | gmt_create", SentAt: "sent_at",
			FailReason: "error_message | fail_reason", MaxRetry: spelledLimit, UpdatedAt: "updated_at | update_time | gmt_modified", UpdatedBy: spelledBy,
		},
		codes: map[outbox.Status]string{outbox.Pending: "PENDING", outbox.Sent: "SENT", outbox.Failed: "FAILED"},
	},
	"order-chain": {
		columns: map[Column]string{
			ID: "id", MessageID: "message_id", BizType: "business_type", Key: "business_id", Topic: "topic", Tag: "tag",
			ShardingKey: "sharding_key", Body: "message_body", Headers: "headers", StatusCode: "status",
			RetryCount: "retry_count", MaxRetry: spelledLimit, NextRetryTime: spelledDue,
			// Every move writes update_time: where nothing else shows the last attempt it is the claim stamp.
			LastExecTime: spelledLast + " | update_time | updated_at", FailReason: "fail_reason", CreatedAt: spelledCreated,
			UpdatedAt: spelledUpdated, UpdatedBy: spelledBy,
		},
		ifPresent: []Column{FailReason},
		codes:     numbers,
		header:    "messageId",
		retry:     outbox.Retry{Sends: true, Backoff: outbox.Backoff{Base: 2 * time.Second}},
	},
	"debezium-outbox": { // the names, topic and headers of Debezium's outbox event router
		columns: map[Column]string{
			ID: "id", MessageID: "id", BizType: "type", Key: "aggregateid", Topic: "aggregatetype", Body: "payload", Headers: "headers",
			CreatedAt: "timestamp | created_at | create_time",
		},
		logOnly: true,
		topic:   "outbox.event.{aggregatetype}",
		header:  "id",
		biz:     "eventType",
	},
}

// everyIfPresent are the roles that any table may lack without a word of its owner.
var everyIfPresent = []Column{Tag, ShardingKey, Headers, MaxRetry, CreatedAt, UpdatedAt, UpdatedBy}

// Presets lists the names that Preset accepts.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset returns a fresh mapping; Schema and Name are the caller's to set.
func Preset(name string) (Mapping, error) {
	p, ok := presets[name]
	if !ok {
		return Mapping{}, fmt.Errorf("table preset %q is unknown: use one of %s", name, strings.Join(Presets(), ", "))
	}
	m := Mapping{
		Preset: name, Columns: map[Column]string{}, Spellings: map[Column][]string{}, IfPresent: map[Column]bool{},
		Codes: maps.Clone(p.codes), States: map[string]string{}, MessageIDHeader: p.header, BizTypeHeader: p.biz, LogOnly: p.logOnly,
		Writer: "canal-outbox", Retry: defaultRetry.Override(p.retry),
	}
	if m.Codes == nil {
		m.Codes = map[outbox.Status]string{}
	}
	if p.topic != "" {
		rule, err := ParseTopic(p.topic)
		if err != nil {
			return Mapping{}, fmt.Errorf("table preset %s: %w", name, err)
		}
		m.Topic = &rule
	}
	maps.Copy(m.States, p.states)
	for role, names := range p.columns {
		spelled := strings.Split(names, " | ")
		m.Columns[role] = spelled[0]
		if len(spelled) > 1 {
			m.Spellings[role] = spelled[1:]
		}
	}
	for _, role := range slices.Concat(everyIfPresent, p.ifPresent) {
		m.IfPresent[role] = true
	}
	return m, nil
}
