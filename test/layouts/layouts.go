// Package layouts has users' tables, column by column and index by index as their owners made them, and the relay's configuration
// for each. Tests of every kind run on them unaltered.
//
// Guarantee: data only; nothing here starts a goroutine.
package layouts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Layout is one table.
type Layout struct {
	Name   string // of the layout
	Table  string // the table's name, without a schema
	DDL    string // with %s for the table's name
	Config string // the keys of tables[] other than the name, in braces
	ID     string // the primary key's column
	Status string // the status column
	Body   string // the body's column
	Due    string // the due time's column; "" when there is none
	Codes  map[string]string
	// Lacks lists what the table has no column or code for: "claim", "failed", "due", "reason".
	Lacks []string
	// Written is a condition on columns that is true for a row that was sent.
	Written string

	// MessageIDs is the expression for the message id of a row.
	MessageIDs string

	insert string // columns of an INSERT
	row    func(n int, topic, body string) []any
	id     func(n int) string
	key    func(n int) string // nil: the message id
}

// Has reports whether a row of the table can have what Lacks lists.
func (l *Layout) Has(what string) bool {
	for _, lack := range l.Lacks {
		if lack == what {
			return false
		}
	}
	return true
}

// Create returns the statement that creates the table.
func (l *Layout) Create() string { return fmt.Sprintf(l.DDL, "`"+l.Table+"`") }

// Insert returns the statement with which an application writes row n; topic is the row's topic.
func (l *Layout) Insert(n int, topic, body string) (query string, args []any) {
	args = l.row(n, topic, body)
	return "INSERT INTO `" + l.Table + "` (" + l.insert + ") VALUES (?" + strings.Repeat(", ?", len(args)-1) + ")", args
}

// MessageID returns that of row n.
func (l *Layout) MessageID(n int) string { return l.id(n) }

// Key returns the key of row n in the broker.
func (l *Layout) Key(n int) string {
	if l.key == nil {
		return l.id(n)
	}
	return l.key(n)
}

// Kind returns the business type of row n in the broker; "" where the table has none.
func (l *Layout) Kind(n int, topic string) string {
	switch l.Name {
	case "B":
		return kind(n)
	case "C", "negative", "binary":
		return ""
	case "D", "char":
		return topic
	case "F", "F2":
		return "Created"
	}
	return "order"
}

// EventTopic is the prefix of the topics of the log-only layouts.
const EventTopic = "outbox.event."

// LogOnly reports whether the table has no status.
func (l *Layout) LogOnly() bool { return l.Status == "" }

// Sent returns the condition that a row is sent.
func (l *Layout) Sent() string { return fmt.Sprintf("%s = '%s'", l.Status, l.Codes["sent"]) }

// Where returns a condition that matches row n.
func (l *Layout) Where(n int) string {
	if l.ID == "message_id" {
		return "message_id = '" + l.id(n) + "'"
	}
	switch l.Name {
	case "F":
		return "id = '" + uuid(n) + "'"
	case "binary", "F2":
		return "id = x'" + l.id(n) + "'"
	case "negative":
		return fmt.Sprintf("id = %d", -n)
	}
	return fmt.Sprintf("id = %d", n)
}

// uuid returns that of row n: not in the order of the numbers.
func uuid(n int) string {
	sum := sha256.Sum256(fmt.Append(nil, n))
	text := hex.EncodeToString(sum[:16])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// key is a 16-byte key whose last bytes are zero.
func key(n int) string {
	return strings.ReplaceAll(uuid(n), "-", "")[:26] + "000000"
}

// few are keys that several rows have.
func few(n int) string { return fmt.Sprintf("k-%d", n%6) }

// third returns keys of the log-only layouts.
func third(n int) string { return fmt.Sprintf("k-%d", n%3) }

// kind returns that of the one row of its key.
func kind(n int) string { return fmt.Sprintf("order.%d", n) }

func numbered(n int) string { return fmt.Sprintf("m-%d", n) }

func single(n int) string { return fmt.Sprintf("k-%d", n) }

func derived(n int) string { return "order:" + single(n) }

var numbers = map[string]string{"pending": "0", "sending": "1", "sent": "2", "failed": "3"}

// All returns the layouts, in the order of their description.
func All() []*Layout { return []*Layout{a(), a2(), b(), c(), d(), e()} }

func a() *Layout {
	return &Layout{
		Name: "A", Table: "t_local_message", ID: "id", Status: "status", Due: "next_retry_time", Codes: numbers,
		Body: "message_body", MessageIDs: "CONCAT(biz_type, ':', biz_key)",
		DDL: `CREATE TABLE %s (
			id BIGINT NOT NULL AUTO_INCREMENT, biz_type VARCHAR(64) NOT NULL, biz_key VARCHAR(128) NOT NULL, topic VARCHAR(255) NOT NULL,
			message_body TEXT NOT NULL, status TINYINT NOT NULL, retry_count INT NOT NULL DEFAULT 0, next_retry_time DATETIME NULL,
			last_exec_time DATETIME NULL, fail_reason VARCHAR(512) NULL, created_by VARCHAR(64) NOT NULL, updated_by VARCHAR(64) NOT NULL,
			gmt_create DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
			gmt_modified DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
			PRIMARY KEY (id), UNIQUE KEY (biz_type, biz_key), KEY (status, next_retry_time), KEY (topic))`,
		Config:  `preset: t_local_message`,
		Written: "last_exec_time IS NOT NULL AND updated_by = 'canal-outbox' AND fail_reason IS NULL",
		insert:  "id, biz_type, biz_key, topic, message_body, status, created_by, updated_by",
		row: func(n int, topic, body string) []any {
			return []any{n, "order", single(n), topic, body, 0, "shop", "shop"}
		},
		id:  derived,
		key: single,
	}
}

func a2() *Layout {
	return &Layout{
		Name: "A2", Table: "local_message_2", ID: "id", Status: "status", Due: "next_retry_time", Codes: numbers,
		Body: "message_body", MessageIDs: "CONCAT(biz_type, ':', biz_key)",
		DDL: `CREATE TABLE %s (
			id BIGINT NOT NULL AUTO_INCREMENT, biz_key VARCHAR(64) NOT NULL, biz_type VARCHAR(32) NOT NULL, topic VARCHAR(64) NOT NULL,
			message_body TEXT NOT NULL, status TINYINT(3) NOT NULL DEFAULT 0, retry_count INT NOT NULL DEFAULT 0, next_retry_time DATETIME NULL,
			last_execute_time DATETIME NULL, fail_reason VARCHAR(255) NULL, create_by VARCHAR(64) NULL, update_by VARCHAR(64) NULL,
			gmt_create DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
			gmt_modified DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
			PRIMARY KEY (id), UNIQUE KEY (biz_type, biz_key))`,
		Config:  `preset: t_local_message`,
		Written: "last_execute_time IS NOT NULL AND update_by = 'canal-outbox' AND fail_reason IS NULL",
		insert:  "id, biz_type, biz_key, topic, message_body",
		row: func(n int, topic, body string) []any {
			return []any{n, "order", single(n), topic, body}
		},
		id:  derived,
		key: single,
	}
}

func b() *Layout {
	return &Layout{
		Name: "B", Table: "local_message_words", ID: "id", Status: "state", Due: "next_retry_at",
		Body: "message_body", MessageIDs: "CONCAT(message_type, ':', message_key)",
		Codes: map[string]string{
			"pending": "待发送", "sending": "发送中", "sent": "已发送", "failed": "失败", "consumed": "已消费", "suspended": "已挂起",
		},
		DDL: `CREATE TABLE %s (
			id BIGINT NOT NULL, gmt_create DATETIME NULL, gmt_modified DATETIME NULL, message_key VARCHAR(128) NOT NULL,
			message_type VARCHAR(64) NOT NULL, message_id VARCHAR(64) NULL, topic VARCHAR(128) NOT NULL, message_body TEXT NOT NULL,
			state VARCHAR(16) NOT NULL, retry_count INT NOT NULL, next_retry_at DATETIME NULL, last_retry_time DATETIME NULL,
			fail_reason TEXT NULL, lock_version BIGINT NOT NULL,
			PRIMARY KEY (id), UNIQUE KEY (message_key, message_type), KEY (state, retry_count, next_retry_at))`,
		Config:  `preset: message-state, codes: {pending: 待发送, sending: 发送中, sent: 已发送, failed: 失败, consumed: 已消费, suspended: 已挂起}`,
		Written: "last_retry_time IS NOT NULL AND gmt_modified IS NOT NULL AND lock_version > 0",
		insert:  "id, message_type, message_key, topic, message_body, state, retry_count, lock_version, gmt_create",
		row: func(n int, topic, body string) []any {
			return []any{n, kind(n), few(n), topic, body, "待发送", 0, 0, "2026-01-01 00:00:00"}
		},
		id:  func(n int) string { return kind(n) + ":" + few(n) },
		key: few,
	}
}

func c() *Layout {
	return &Layout{
		Name: "C", Table: "local_message_table", ID: "id", Status: "state", Due: "next_retry_time", Lacks: []string{"claim", "failed", "reason"},
		Body: "content", MessageIDs: "message_id",
		Codes: map[string]string{"pending": "0", "sent": "1", "consumed": "2"},
		DDL: `CREATE TABLE %s (
			id BIGINT NOT NULL AUTO_INCREMENT, message_id VARCHAR(128) NOT NULL, topic VARCHAR(64) NOT NULL, content TEXT NOT NULL,
			state TINYINT NOT NULL DEFAULT 0, retry_count INT NOT NULL DEFAULT 0, max_retry_count INT NOT NULL DEFAULT 5,
			next_retry_time DATETIME NULL, create_time DATETIME NOT NULL, update_time DATETIME NOT NULL,
			PRIMARY KEY (id), UNIQUE KEY (message_id), KEY (state, next_retry_time))`,
		Config:  `preset: local_message_table`,
		Written: "update_time > create_time",
		insert:  "id, message_id, topic, content, create_time, update_time",
		row: func(n int, topic, body string) []any {
			return []any{n, numbered(n), topic, body, "2026-01-01 00:00:00", "2026-01-01 00:00:00"}
		},
		id: numbered,
	}
}

func d() *Layout {
	return &Layout{
		Name: "D", Table: "local_message", ID: "message_id", Status: "status", Lacks: []string{"claim", "due"},
		Body: "payload", MessageIDs: "message_id",
		Codes: map[string]string{"pending": "PENDING", "sent": "SENT", "failed": "FAILED"},
		DDL: `CREATE TABLE %s (
			message_id VARCHAR(64) NOT NULL, event_type VARCHAR(100) NOT NULL, payload TEXT NOT NULL, status VARCHAR(20) NOT NULL,
			retry_count INT NOT NULL DEFAULT 0, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, sent_at TIMESTAMP NULL,
			error_message TEXT NULL, PRIMARY KEY (message_id), KEY (status, created_at))`,
		Config:  `preset: local_message`,
		Written: "sent_at IS NOT NULL AND error_message IS NULL",
		insert:  "message_id, event_type, payload, status",
		row:     func(n int, topic, body string) []any { return []any{uuid(n), topic, body, "PENDING"} },
		id:      uuid,
	}
}

func e() *Layout {
	return &Layout{
		Name: "E", Table: "t_local_message_chain", ID: "id", Status: "status", Due: "next_retry_time", Codes: numbers, Lacks: []string{"reason"},
		Body: "message_body", MessageIDs: "message_id",
		DDL: `CREATE TABLE %s (
			id BIGINT NOT NULL AUTO_INCREMENT, message_id VARCHAR(64) NOT NULL, business_type VARCHAR(32) NOT NULL,
			business_id VARCHAR(64) NOT NULL, topic VARCHAR(64) NOT NULL, message_body TEXT NOT NULL, status TINYINT NOT NULL DEFAULT 0,
			retry_count INT NOT NULL DEFAULT 0, max_retry INT NOT NULL DEFAULT 5, next_retry_time DATETIME NULL,
			create_time DATETIME NOT NULL, update_time DATETIME NOT NULL,
			PRIMARY KEY (id), UNIQUE KEY (message_id), KEY (status, next_retry_time), KEY (business_type, business_id))`,
		Config:  `preset: order-chain`,
		Written: "update_time > create_time",
		insert:  "id, message_id, business_type, business_id, topic, message_body, create_time, update_time",
		row: func(n int, topic, body string) []any {
			return []any{n, numbered(n), "order", single(n), topic, body, "2026-01-01 00:00:00", "2026-01-01 00:00:00"}
		},
		id:  numbered,
		key: single,
	}
}

// LogOnly are the two forms of Debezium's outbox: only the log is read, and the table has no status. The topic of a row is
// outbox.event. followed by the argument of Insert; its body is JSON.
func LogOnly() []*Layout {
	const columns = "id, aggregatetype, aggregateid, type, payload"
	return []*Layout{
		{
			Name: "F", Table: "outboxevent", ID: "id", Config: `preset: debezium-outbox`, insert: columns, id: uuid, key: third,
			DDL: `CREATE TABLE %s (
				id CHAR(36) NOT NULL, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL,
				payload JSON NULL, PRIMARY KEY (id))`,
			row: func(n int, topic, body string) []any {
				return []any{uuid(n), topic, third(n), "Created", body}
			},
		},
		{
			Name: "F2", Table: "outboxevent_2", ID: "id", Config: `preset: debezium-outbox`, insert: columns, id: key, key: third,
			DDL: `CREATE TABLE %s (
				id BINARY(16) NOT NULL, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL,
				payload LONGBLOB NULL, timestamp DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), tracingspancontext VARCHAR(256) NULL,
				PRIMARY KEY (id))`,
			row: func(n int, topic, body string) []any {
				bytes, _ := hex.DecodeString(key(n)) // digits of our own
				return []any{bytes, topic, third(n), "Created", body}
			},
		},
	}
}
