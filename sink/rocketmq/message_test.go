package rocketmq

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

func newEncoder() *encoder { return &encoder{maxBody: 4 << 20} }

// Messages that are refused for good before the send, and messages just within the limits.
func TestB06_B07_CheckedBeforeTheSend(t *testing.T) {
	header := func(name, value string) func(*outbox.Message) {
		return func(m *outbox.Message) { m.Headers = []outbox.Header{{Name: name, Value: value}} }
	}
	body := func(n int) func(*outbox.Message) { return func(m *outbox.Message) { m.Body = make([]byte, n) } }
	for _, c := range []struct {
		name   string
		change func(*outbox.Message)
		fault  string // part of the reason; "" when it is accepted
	}{
		{"plain", func(*outbox.Message) {}, ""},
		{"NULL body", func(m *outbox.Message) { m.Body = nil }, "empty"},
		{"empty body", body(0), "empty"},
		{"body at the limit", body(4 << 20), ""},
		{"body above the limit", body(4<<20 + 1), "4194305 bytes"},
		{"large header", header("h", strings.Repeat("x", 30_000)), ""},
		{"header too large", header("h", strings.Repeat("x", 40_000)), "limit"},
		{"separator 1 in a header", header("h", "a\x01b"), `\x01`},
		{"separator 2 in a header", header("h", "a\x02b"), `\x02`},
		{"separator in a name", header("h\x01", "v"), `\x01`},
		{"separator in the key", func(m *outbox.Message) { m.Key = "a\x02" }, "KEYS"},
		{"separator in the tag", func(m *outbox.Message) { m.Tag = "a\x01" }, "TAGS"},
		{"separator in the sharding key", func(m *outbox.Message) { m.ShardingKey = "a\x01" }, "SHARDING_KEY"},
		{"separator in the message id", func(m *outbox.Message) { m.MessageID = "a\x01" }, "UNIQ_KEY"},
		{"not text", header("h", "\xff\xfe"), "UTF-8"},
		{"empty value", header("h", ""), "no value"},
		{"empty name", header("", "v"), "no name"},
		{"line breaks", header("h", "a\r\n\tb\x00"), ""},
		{"transaction", header("TRAN_MSG", "true"), "is reserved by RocketMQ"},
		{"delay", header("DELAY", "3"), "is reserved by RocketMQ"},
		{"our own header names", header(propertyBizType, "x"), ""},
	} {
		m := message("orders", "k")
		c.change(m)
		fault := newEncoder().fault(m, time.Now())
		if (fault == "") != (c.fault == "") || !strings.Contains(fault, c.fault) {
			t.Errorf("%s: %q, want %q", c.name, fault, c.fault)
		}
	}
}

// B08: the broker's rule, not that of another sink.
func TestB08_TopicNames(t *testing.T) {
	for name, legal := range map[string]bool{
		"orders": true, "NS%orders": true, "a|b_c-D9": true, strings.Repeat("t", 127): true,
		"": false, strings.Repeat("t", 128): false, "a.b": false, "a b": false, "a/b": false, "über": false, "a\x01": false,
	} {
		if got := topicFault(name) == ""; got != legal {
			t.Errorf("%q: legal %v, want %v", name, got, legal)
		}
	}
}

func TestB18_DelayedMessages(t *testing.T) {
	c, s := newOrders(t, func(cfg *Section) { cfg.NativeDelay = true })
	list := messages("orders", "k", 9)
	now := time.Now()
	for i, due := range map[int]time.Duration{2: 5 * time.Second, 3: 48 * time.Hour, 5: -time.Hour, 7: 96 * time.Hour} {
		list[i].DueAt, list[i].Later = now.Add(due), true
	}
	for i, o := range send(t, s, list...).wait() {
		if want := i == 7; (o.Class == outbox.ClassPermanent) != want {
			t.Errorf("message %d: %+v", i, o)
		}
	}
	for _, r := range c.brokers["broker-a"].requests {
		for _, m := range r.messages {
			if m.properties[propertyTimer] != "" && (len(r.messages) > 1 || r.code != 10) {
				t.Errorf("a delayed message is in a batch of %d", len(r.messages))
			}
		}
	}
	stored := c.stored("orders")
	for i, at := range []int{0, 1, 2, 3, 4, 5, 6, 8} {
		want := ""
		if at == 2 || at == 3 {
			want = fmt.Sprint(list[at].DueAt.UnixMilli())
		}
		if m := stored[i]; m.properties["UNIQ_KEY"] != list[at].MessageID || m.properties[propertyTimer] != want {
			t.Errorf("stored %d: %v", i, m.properties)
		}
	}
}

func TestDueTimesAreIgnoredUnlessAsked(t *testing.T) {
	e := newEncoder()
	m := message("orders", "k")
	m.DueAt = time.Now().Add(1000 * time.Hour)
	if fault := e.fault(m, time.Now()); fault != "" {
		t.Error(fault)
	}
	for _, p := range e.properties(m, time.Now()) {
		if p.Name == propertyTimer {
			t.Error("the due time is handed to the broker")
		}
	}
}

// Our batch encoder writes what the library's own would, except for the order of properties.
func TestBatchFormatIsTheLibrarys(t *testing.T) {
	e, now := newEncoder(), time.Now()
	queue := &primitive.MessageQueue{Topic: "orders", BrokerName: "broker-a"}
	list := messages("orders", "k", 3)
	ours := e.many(list, queue, now)
	rest := ours.Body
	for i, m := range list {
		theirs := newEncoder().single(m, queue, now).Marshal()
		if len(rest) < len(theirs) {
			t.Fatalf("message %d: %d bytes are left, want %d", i, len(rest), len(theirs))
		}
		props := len(theirs) - len(newEncoder().single(m, queue, now).MarshallProperties())
		if string(rest[:props]) != string(theirs[:props]) {
			t.Errorf("message %d: % x, want % x", i, rest[:props], theirs[:props])
		}
		got, want := remoting.SplitProperties(string(rest[props:len(theirs)])), remoting.SplitProperties(string(theirs[props:]))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("message %d: properties %v, want %v", i, got, want)
		}
		rest = rest[len(theirs):]
	}
	if len(rest) > 0 || !ours.Batch {
		t.Errorf("%d bytes too many, batch %v", len(rest), ours.Batch)
	}
}
