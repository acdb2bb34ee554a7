package producer_test

import (
	"github.com/canal-outbox/canal-outbox/outbox/producer"
)

// tables are the layouts as their owners have them: no column or index is added for the tests.
var tables = map[producer.Preset]string{
	producer.TLocalMessage: `CREATE TABLE %s (
		id BIGINT NOT NULL AUTO_INCREMENT, biz_type VARCHAR(64) NOT NULL, biz_key VARCHAR(128) NOT NULL, topic VARCHAR(255) NOT NULL,
		message_body TEXT NOT NULL, status TINYINT NOT NULL, retry_count INT NOT NULL DEFAULT 0, next_retry_time DATETIME NULL,
		last_exec_time DATETIME NULL, fail_reason VARCHAR(512) NULL, created_by VARCHAR(64) NOT NULL, updated_by VARCHAR(64) NOT NULL,
		gmt_create DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
		gmt_modified DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
		PRIMARY KEY (id), UNIQUE KEY (biz_type, biz_key), KEY (status, next_retry_time), KEY (topic))`,
	producer.TLocalMessage2: `CREATE TABLE %s (
		id BIGINT NOT NULL AUTO_INCREMENT, biz_key VARCHAR(64) NOT NULL, biz_type VARCHAR(32) NOT NULL, topic VARCHAR(64) NOT NULL,
		message_body TEXT NOT NULL, status TINYINT(3) NOT NULL DEFAULT 0, retry_count INT NOT NULL DEFAULT 0, next_retry_time DATETIME NULL,
		last_execute_time DATETIME NULL, fail_reason VARCHAR(255) NULL, create_by VARCHAR(64) NULL, update_by VARCHAR(64) NULL,
		gmt_create DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
		gmt_modified DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
		PRIMARY KEY (id), UNIQUE KEY (biz_type, biz_key))`,
	producer.MessageState: `CREATE TABLE %s (
		id BIGINT NOT NULL, gmt_create DATETIME NOT NULL, gmt_modified DATETIME NOT NULL, message_key VARCHAR(128) NOT NULL,
		message_type VARCHAR(64) NOT NULL, message_id VARCHAR(64) NULL, topic VARCHAR(128) NOT NULL, message_body JSON NOT NULL,
		state VARCHAR(16) NOT NULL, retry_count INT NOT NULL, next_retry_at DATETIME NULL, last_retry_time DATETIME NULL,
		fail_reason TEXT NULL, lock_version BIGINT NOT NULL,
		PRIMARY KEY (id), UNIQUE KEY (message_key, message_type), KEY (state))`,
	producer.LocalMessageTable: `CREATE TABLE %s (
		id BIGINT NOT NULL AUTO_INCREMENT, message_id VARCHAR(128) NOT NULL, topic VARCHAR(64) NOT NULL, content TEXT NOT NULL,
		state TINYINT NOT NULL DEFAULT 0, retry_count INT NOT NULL DEFAULT 0, max_retry_count INT NOT NULL DEFAULT 5,
		next_retry_time DATETIME NULL, create_time DATETIME NOT NULL, update_time DATETIME NOT NULL,
		PRIMARY KEY (id), UNIQUE KEY (message_id), KEY (state, next_retry_time))`,
	producer.LocalMessage: `CREATE TABLE %s (
		message_id VARCHAR(64) NOT NULL, event_type VARCHAR(100) NOT NULL, payload TEXT NOT NULL, status VARCHAR(20) NOT NULL,
		retry_count INT NOT NULL DEFAULT 0, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, sent_at TIMESTAMP NULL,
		error_message TEXT NULL, PRIMARY KEY (message_id), KEY (status, created_at))`,
	producer.OrderChain: `CREATE TABLE %s (
		id BIGINT NOT NULL AUTO_INCREMENT, message_id VARCHAR(64) NOT NULL, business_type VARCHAR(32) NOT NULL,
		business_id VARCHAR(64) NOT NULL, topic VARCHAR(64) NOT NULL, message_body TEXT NOT NULL, status TINYINT NOT NULL DEFAULT 0,
		retry_count INT NOT NULL DEFAULT 0, max_retry INT NOT NULL DEFAULT 5, next_retry_time DATETIME NULL,
		create_time DATETIME NOT NULL, update_time DATETIME NOT NULL,
		PRIMARY KEY (id), UNIQUE KEY (message_id), KEY (status, next_retry_time), KEY (business_type, business_id))`,
	producer.DebeziumOutbox: `CREATE TABLE %s (
		id CHAR(36) NOT NULL, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL,
		payload JSON NULL, PRIMARY KEY (id))`,
}

// whole is a message with everything that its layout holds, and whole rows show it: WHERE finds the row.
var whole = map[producer.Preset]struct {
	message producer.Message
	id      string // "" where one is made
	where   string
}{
	producer.Outbox: {
		producer.Message{
			BizType: "order_paid", Key: "4711", Topic: "orders", Tag: "vip", ShardingKey: "s", Headers: map[string]string{"b": "2", "a": "ä"},
			MaxRetry: 3, Body: []byte(`{"n": 1}`),
		},
		"order_paid:4711",
		`biz_type = 'order_paid' AND biz_key = '4711' AND topic = 'orders' AND tag = 'vip' AND sharding_key = 's' AND max_retry = 3
		 AND headers = '{"a":"ä","b":"2"}' AND message_body = '{"n": 1}' AND status = 0 AND retry_count = 0 AND created_by = 'shop'`,
	},
	producer.TLocalMessage: {
		producer.Message{BizType: "order_paid", Key: "4711", Topic: "orders", Body: []byte(`{"n": 1}`)},
		"order_paid:4711",
		`biz_type = 'order_paid' AND biz_key = '4711' AND topic = 'orders' AND message_body = '{"n": 1}' AND status = 0 AND retry_count = 0
		 AND created_by = 'shop' AND updated_by = 'shop' AND ABS(TIMESTAMPDIFF(SECOND, gmt_create, NOW())) < 60`,
	},
	producer.TLocalMessage2: {
		producer.Message{BizType: "order_paid", Key: "4711", Topic: "orders", Body: []byte(`{"n": 1}`)},
		"order_paid:4711",
		`biz_type = 'order_paid' AND biz_key = '4711' AND topic = 'orders' AND message_body = '{"n": 1}' AND status = 0
		 AND create_by = 'shop' AND update_by = 'shop' AND ABS(TIMESTAMPDIFF(SECOND, gmt_create, NOW())) < 60`,
	},
	producer.MessageState: {
		producer.Message{ID: 1 << 60, BizType: "order_paid", Key: "4711", Topic: "orders", Body: []byte(`{"n": 1}`)},
		"order_paid:4711",
		`id = 1152921504606846976 AND message_type = 'order_paid' AND message_key = '4711' AND message_id IS NULL AND topic = 'orders'
		 AND JSON_EXTRACT(message_body, '$.n') = 1 AND state = 'pending' AND retry_count = 0 AND lock_version = 0
		 AND ABS(TIMESTAMPDIFF(SECOND, gmt_create, NOW())) < 60`,
	},
	producer.LocalMessageTable: {
		producer.Message{MessageID: "m-1", Topic: "orders", Body: []byte("text"), MaxRetry: 7},
		"m-1",
		`message_id = 'm-1' AND topic = 'orders' AND content = 'text' AND state = 0 AND retry_count = 0 AND max_retry_count = 7
		 AND next_retry_time IS NULL AND ABS(TIMESTAMPDIFF(SECOND, create_time, NOW())) < 60`,
	},
	producer.LocalMessage: {
		producer.Message{BizType: "order_paid", Body: []byte("text")},
		"",
		`event_type = 'order_paid' AND payload = 'text' AND status = 'PENDING' AND retry_count = 0
		 AND ABS(TIMESTAMPDIFF(SECOND, created_at, NOW())) < 60 AND message_id = ?`,
	},
	producer.OrderChain: {
		producer.Message{BizType: "paid", Key: "4711", Topic: "orders", Body: []byte("text"), MaxRetry: 2},
		"",
		`business_type = 'paid' AND business_id = '4711' AND topic = 'orders' AND message_body = 'text' AND status = 0 AND retry_count = 0
		 AND max_retry = 2 AND ABS(TIMESTAMPDIFF(SECOND, create_time, NOW())) < 60 AND message_id = ?`,
	},
	producer.DebeziumOutbox: {
		producer.Message{BizType: "OrderPaid", Key: "4711", Topic: "outbox.event.order", Body: []byte(`{"n": 1}`)},
		"",
		`aggregatetype = 'order' AND aggregateid = '4711' AND type = 'OrderPaid' AND JSON_EXTRACT(payload, '$.n') = 1 AND id = ?`,
	},
}
