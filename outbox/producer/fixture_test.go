package producer_test

import (
	"github.com/canal-outbox/canal-outbox/outbox/producer"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// tables are the layouts as their owners have them: no column or index is added for the tests.
var tables = func() map[producer.Preset]string {
	all := map[producer.Preset]string{
		producer.DebeziumOutbox: `CREATE TABLE %s (
			id CHAR(36) NOT NULL, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL,
			payload JSON NULL, PRIMARY KEY (id))`,
	}
	presets := map[string]producer.Preset{
		"A": producer.TLocalMessage, "A2": producer.TLocalMessage2, "B": producer.MessageState, "C": producer.LocalMessageTable,
		"D": producer.LocalMessage, "E": producer.OrderChain,
	}
	for _, layout := range layouts.All() {
		all[presets[layout.Name]] = layout.DDL
	}
	return all
}()

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
