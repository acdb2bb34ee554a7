package layouts

import (
	"encoding/hex"
	"strings"
)

// Keys are tables with every kind of key that the layouts do not have: bytes, text of fixed length, and negative numbers.
func Keys() []*Layout { return []*Layout{Binary(), char(), negative()} }

// char is layout D with a key that the server pads with spaces, in a case-insensitive collation.
func char() *Layout {
	l := d()
	l.Name, l.Table = "char", "char_message"
	l.DDL = strings.Replace(l.DDL, "message_id VARCHAR(64) NOT NULL", "message_id CHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL", 1)
	return l
}

// negative is layout C with keys that count downwards from zero.
func negative() *Layout {
	l := c()
	l.Name, l.Table = "negative", "negative_message"
	l.row = func(n int, topic, body string) []any {
		return []any{-n, numbered(n), topic, body, "2026-01-01 00:00:00", "2026-01-01 00:00:00"}
	}
	return l
}

// Binary is a table without a known layout, with what the others do not have: a key of bytes, no attempts, no due time, no time
// of its own.
func Binary() *Layout {
	return &Layout{
		Name: "binary", Table: "binary_message", ID: "id", Status: "status", Lacks: []string{"claim", "due", "failed", "reason", "attempts"},
		Body: "body", MessageIDs: "LOWER(HEX(id))",
		Codes: map[string]string{"pending": "new", "sent": "sent"},
		DDL: `CREATE TABLE %s (id BINARY(16) NOT NULL PRIMARY KEY, kind INT NOT NULL, body VARBINARY(2000) NULL, status CHAR(8) NOT NULL,
			KEY (status))`,
		Config: `preset: local_message, columns: {id: id, message_id: id, key: id, biz_type: "", body: body, retry_count: "", sent_at: "", fail_reason: "", ` +
			`created_at: ""}, codes: {pending: new, sent: sent, failed: ""}, topic: {column: kind, map: {1: orders, 2: payments}}`,
		Written: "TRUE",
		insert:  "id, kind, body, status",
		row: func(n int, topic, body string) []any {
			bytes, _ := hex.DecodeString(key(n)) // digits of our own
			return []any{bytes, map[string]int{"orders": 1, "payments": 2}[topic], body, "new"}
		},
		id: key,
	}
}
