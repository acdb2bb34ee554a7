package rocketmq

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// The broker's limits, checked before the send because neither the library nor a batch request checks them: in a batch the 16-bit
// length of the properties wraps silently, and one bad message refuses all.
const (
	maxTopicLength = 127 // TopicValidator
	// The broker stores properties with a 15-bit length and adds its own (cluster, region, trace switch) first.
	maxProperties   = 32767 - 512
	entryOverhead   = 4 + 4 + 4 + 4 + 4 + 2 // of one message of a batch: four words, body length, properties' length
	propertyTimer   = "TIMER_DELIVER_MS"
	propertyBizType = "biz_type"
	propertyCreated = "created_at"
)

// reserved names are used by brokers and clients (org.apache.rocketmq.common.message.MessageConst). A header of such a name could
// hide a message for ever (TRAN_MSG), delay it, or send it elsewhere, so it is refused.
var reserved = func() map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(`KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
		BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
		EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE INNER_BATCH DUP_INFO
		CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __transactionId__ TRANSACTION_CHECK_TIMES INSTANCE_ID
		CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME
		__SHARDINGKEY SHARDING_KEY PROPERTY_FORWARD_QUEUE_ID REDIRECT INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET
		TRACE_CONTEXT TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES
		TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP __CRC32# DLQ_ORIGIN_TOPIC
		DLQ_ORIGIN_MESSAGE_ID __RMQ.TRANSIENT.TOPIC_SYS_FLAG __RMQ.TRANSIENT.GROUP_SYS_FLAG`) {
		set[name] = true
	}
	return set
}()

// property is sent with the body: a header of the row, or one of ours.
type property struct{ Name, Value string }

// encoder builds requests. Each worker owns one; its result is valid until its next call. Every attempt encodes again, because
// the library may change a message object while it sends it (failure B09).
type encoder struct {
	maxBody int
	props   []property
	batch   []byte
}

// topicFault checks a name as the broker does: ^[%|a-zA-Z0-9_-]+$ (TopicValidator).
func topicFault(topic string) string { return sink.NameFault(topic, "%|_-", maxTopicLength) }

// fault returns why a message can never be accepted; "" when it can.
func (e *encoder) fault(m *outbox.Message, now time.Time) string {
	switch n := len(m.Body); {
	case n == 0:
		return "the body is empty, which RocketMQ does not accept"
	case n > e.maxBody:
		return fmt.Sprintf("the body has %d bytes, the limit is %d (sink.rocketmq.max_message_bytes, maxMessageSize of the broker)", n, e.maxBody)
	}
	if delayed(m, now) && m.DueAt.Sub(now) > maxDelay {
		return fmt.Sprintf("it is due at %s, the broker delays by at most %s (timerMaxDelaySec)", m.DueAt.Format(time.RFC3339), maxDelay)
	}
	for _, h := range m.Headers {
		switch {
		case h.Name == "" || h.Value == "":
			return fmt.Sprintf("header %.80q has no name or no value: RocketMQ would drop it", h.Name)
		case reserved[h.Name]:
			return fmt.Sprintf("the header name %s is reserved by RocketMQ", h.Name)
		}
	}
	size := 0
	for _, p := range e.properties(m, now) {
		if bad := textFault(p.Name) + textFault(p.Value); bad != "" {
			return fmt.Sprintf("property %.80q %s", p.Name, bad)
		}
		size += len(p.Name) + len(p.Value) + 2
	}
	if size > maxProperties {
		return fmt.Sprintf("headers and keys have %d bytes, the limit is %d", size, maxProperties)
	}
	return ""
}

// textFault: properties are sent as text with \x01 and \x02 between them.
func textFault(text string) string {
	switch {
	case strings.IndexByte(text, 1) >= 0 || strings.IndexByte(text, 2) >= 0:
		return `holds \x01 or \x02, RocketMQ's separators`
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	}
	return ""
}

// delayed reports whether the broker's timer gets the message.
func delayed(m *outbox.Message, now time.Time) bool {
	return m.Later && m.DueAt.After(now)
}

// properties lists what is sent with the body: the message id as UNIQ_KEY (the id that consumers see, the same in every copy) and
// as a search key with the business key, then the row's headers, which take precedence over biz_type and created_at.
func (e *encoder) properties(m *outbox.Message, now time.Time) []property {
	keys := m.MessageID
	if m.Key != "" && m.Key != m.MessageID {
		keys += " " + m.Key
	}
	e.props = append(e.props[:0], property{"UNIQ_KEY", m.MessageID}, property{"KEYS", keys}, property{"WAIT", "true"})
	optional := func(name, value string) {
		if value != "" {
			e.props = append(e.props, property{name, value})
		}
	}
	optional("TAGS", m.Tag)
	optional("SHARDING_KEY", m.ShardingKey)
	optional(propertyBizType, m.BizType)
	if !m.CreatedAt.IsZero() {
		optional(propertyCreated, m.CreatedAt.UTC().Format(time.RFC3339Nano))
	}
	if delayed(m, now) {
		optional(propertyTimer, strconv.FormatInt(m.DueAt.UnixMilli(), 10))
	}
	for _, h := range m.Headers {
		e.props = append(e.props, property(h))
	}
	return e.props
}

// single builds the request of one message.
func (e *encoder) single(m *outbox.Message, queue *primitive.MessageQueue, now time.Time) *primitive.Message {
	props := make(map[string]string, 8+len(m.Headers))
	for _, p := range e.properties(m, now) {
		props[p.Name] = p.Value
	}
	msg := &primitive.Message{Topic: m.Topic, Body: m.Body, Queue: queue}
	msg.WithProperties(props)
	return msg
}

// many builds the request of a batch: the library sends a message marked as batch as it is. Its own encoder builds a map and four
// buffers for each message and costs several times as much. Format: MessageDecoder.encodeMessage, per entry: size, magic code,
// checksum, flag, body length, body, properties' length, properties; big endian.
func (e *encoder) many(messages []*outbox.Message, queue *primitive.MessageQueue, now time.Time) *primitive.Message {
	b := e.batch[:0]
	for _, m := range messages {
		props := e.properties(m, now)
		start := len(b)
		b = append(b, make([]byte, entryOverhead-6)...) // size is set below; magic code, checksum and flag are 0
		b = binary.BigEndian.AppendUint32(b, uint32(len(m.Body)))
		b = append(b, m.Body...)
		at := len(b)
		b = append(b, 0, 0)
		for _, p := range props {
			b = append(append(b, p.Name...), 1)
			b = append(append(b, p.Value...), 2)
		}
		binary.BigEndian.PutUint16(b[at:], uint16(len(b)-at-2))
		binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start))
	}
	e.batch = b
	return &primitive.Message{Topic: queue.Topic, Body: b, Queue: queue, Batch: true}
}
