package producer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Role is what a column is for. The words are those of tables[].columns in the relay's configuration.
type Role string

// The roles that a producer writes. The last two are those of rows that the application sends itself.
const (
	ID          Role = "id"         // primary key, where the application chooses it
	MessageID   Role = "message_id" // what consumers drop copies by
	BizType     Role = "biz_type"
	Key         Role = "key"
	Topic       Role = "topic"
	Tag         Role = "tag"
	ShardingKey Role = "sharding_key"
	Headers     Role = "headers" // a JSON object
	Body        Role = "body"
	Status      Role = "status"
	RetryCount  Role = "retry_count"
	MaxRetry    Role = "max_retry"
	DueAt       Role = "next_retry_time"
	CreatedAt   Role = "created_at"
	UpdatedAt   Role = "updated_at"
	CreatedBy   Role = "created_by"
	UpdatedBy   Role = "updated_by"
	LockVersion Role = "lock_version"
	FailReason  Role = "fail_reason"
	SentAt      Role = "sent_at"
)

var roles = []Role{
	ID, MessageID, BizType, Key, Topic, Tag, ShardingKey, Headers, Body, Status, RetryCount, MaxRetry, DueAt, CreatedAt,
	UpdatedAt, CreatedBy, UpdatedBy, LockVersion, FailReason, SentAt,
}

// texts are the roles whose values may be one: a column may play several of them.
var texts = []Role{MessageID, BizType, Key, Topic, Tag, ShardingKey}

// Preset is a layout that tables have. The words are those of tables[].preset in the relay's configuration.
type Preset string

// The presets. docs/applications.md shows the table of each.
const (
	Outbox            Preset = "outbox" // the relay's own layout
	TLocalMessage     Preset = "t_local_message"
	TLocalMessage2    Preset = "t_local_message_2" // the same with create_by and update_by, and shorter columns
	MessageState      Preset = "message-state"
	LocalMessageTable Preset = "local_message_table"
	LocalMessage      Preset = "local_message"
	OrderChain        Preset = "order-chain"
	DebeziumOutbox    Preset = "debezium-outbox"
)

// layout is what a preset says about its table.
type layout struct {
	table   string
	columns map[Role]string
	limits  map[Role]int     // longest value in characters, for Body in bytes; none where the layout does not say
	needs   []Role           // without these a row is no message, or the column is NOT NULL
	codes   map[State]string // nil without a status column
	prefix  string           // of every topic; the column holds the rest
}

const textBytes = 1<<16 - 1 // a TEXT column

// numbers are the codes of t_local_message and the tables that follow it.
var numbers = map[State]string{Pending: "0", Sending: "1", Sent: "2", Failed: "3"}

var layouts = map[Preset]layout{
	Outbox: {
		table: "t_local_message",
		columns: map[Role]string{
			BizType: "biz_type", Key: "biz_key", Topic: "topic", Tag: "tag", ShardingKey: "sharding_key", Headers: "headers",
			Body: "message_body", Status: "status", RetryCount: "retry_count", MaxRetry: "max_retry", DueAt: "next_retry_time",
			CreatedAt: "created_at", UpdatedAt: "updated_at", CreatedBy: "created_by", UpdatedBy: "updated_by", FailReason: "fail_reason",
		},
		limits: map[Role]int{BizType: 64, Key: 128, Topic: 255, Tag: 128, ShardingKey: 128, CreatedBy: 64, UpdatedBy: 64, FailReason: 1024},
		needs:  []Role{BizType, Key, Topic},
		codes:  numbers,
	},
	TLocalMessage: {
		table: "t_local_message",
		columns: map[Role]string{
			BizType: "biz_type", Key: "biz_key", Topic: "topic", Body: "message_body", Status: "status", RetryCount: "retry_count",
			DueAt: "next_retry_time", CreatedAt: "gmt_create", UpdatedAt: "gmt_modified", CreatedBy: "created_by", UpdatedBy: "updated_by",
			FailReason: "fail_reason",
		},
		limits: map[Role]int{BizType: 64, Key: 128, Topic: 255, Body: textBytes, CreatedBy: 64, UpdatedBy: 64, FailReason: 512},
		needs:  []Role{BizType, Key, Topic, Body},
		codes:  numbers,
	},
	TLocalMessage2: {
		table: "local_message",
		columns: map[Role]string{
			BizType: "biz_type", Key: "biz_key", Topic: "topic", Body: "message_body", Status: "status", RetryCount: "retry_count",
			DueAt: "next_retry_time", CreatedAt: "gmt_create", UpdatedAt: "gmt_modified", CreatedBy: "create_by", UpdatedBy: "update_by",
			FailReason: "fail_reason",
		},
		limits: map[Role]int{BizType: 32, Key: 64, Topic: 64, Body: textBytes, CreatedBy: 64, UpdatedBy: 64, FailReason: 255},
		needs:  []Role{BizType, Key, Topic, Body},
		codes:  numbers,
	},
	MessageState: {
		table: "local_message",
		columns: map[Role]string{
			ID: "id", BizType: "message_type", Key: "message_key", Topic: "topic", Body: "message_body", Status: "state",
			RetryCount: "retry_count", DueAt: "next_retry_at", CreatedAt: "gmt_create", UpdatedAt: "gmt_modified",
			LockVersion: "lock_version", FailReason: "fail_reason",
		},
		needs: []Role{ID, BizType, Key, Topic},
		codes: map[State]string{Pending: "pending", Sent: "sent", Failed: "failed"},
	},
	LocalMessageTable: {
		table: "local_message_table",
		columns: map[Role]string{
			MessageID: "message_id", Key: "message_id", Topic: "topic", Body: "content", Status: "state", RetryCount: "retry_count",
			MaxRetry: "max_retry_count", DueAt: "next_retry_time", CreatedAt: "create_time", UpdatedAt: "update_time",
		},
		limits: map[Role]int{MessageID: 128, Topic: 64, Body: textBytes},
		needs:  []Role{Topic, Body},
		codes:  map[State]string{Pending: "0", Sent: "1"},
	},
	LocalMessage: {
		table: "local_message",
		columns: map[Role]string{
			MessageID: "message_id", Key: "message_id", BizType: "event_type", Topic: "event_type", Body: "payload", Status: "status",
			RetryCount: "retry_count", FailReason: "error_message", SentAt: "sent_at",
		},
		limits: map[Role]int{MessageID: 64, BizType: 100, Body: textBytes},
		needs:  []Role{BizType, Body},
		codes:  map[State]string{Pending: "PENDING", Sent: "SENT", Failed: "FAILED"},
	},
	OrderChain: {
		table: "t_local_message",
		columns: map[Role]string{
			MessageID: "message_id", BizType: "business_type", Key: "business_id", Topic: "topic", Body: "message_body", Status: "status",
			RetryCount: "retry_count", MaxRetry: "max_retry", DueAt: "next_retry_time", CreatedAt: "create_time", UpdatedAt: "update_time",
		},
		limits: map[Role]int{MessageID: 64, BizType: 32, Key: 64, Topic: 64, Body: textBytes},
		needs:  []Role{BizType, Key, Topic, Body},
		codes:  numbers,
	},
	DebeziumOutbox: {
		table: "outbox",
		columns: map[Role]string{
			MessageID: "id", Topic: "aggregatetype", Key: "aggregateid", BizType: "type", Body: "payload",
		},
		needs:  []Role{Topic, Key, BizType},
		prefix: "outbox.event.",
	},
}

// Presets lists the layouts that New accepts.
func Presets() []Preset { return slices.Sorted(maps.Keys(layouts)) }

// quoted makes an identifier of a name, or of schema.table.
func quoted(name string) (string, error) {
	parts := strings.SplitN(name, ".", 2)
	for i, part := range parts {
		if !isName(part) {
			return "", fmt.Errorf("%q is no name that MySQL takes", name)
		}
		parts[i] = quote(part)
	}
	return strings.Join(parts, "."), nil
}

// isName follows the reference manual, "Schema Object Names".
func isName(name string) bool {
	return name != "" && utf8.ValidString(name) && utf8.RuneCountInString(name) <= 64 && !strings.ContainsRune(name, 0) &&
		!strings.HasSuffix(name, " ")
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
