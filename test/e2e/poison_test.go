package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// poison are rows that no broker, or this one, can ever take, by key. The others are good.
var poison = map[string]func(*relay.Row){
	"large":   func(r *relay.Row) { r.Body = []byte(strings.Repeat("large", 1<<20)) },
	"illegal": func(r *relay.Row) { r.Topic = "orders/created ü" },
	"long":    func(r *relay.Row) { r.Topic = strings.Repeat("t", 255) },
}

// Poison rows among good ones, in transactions of their own and together with them: each ends FAILED with the reason, its
// neighbours are SENT.
func TestD15_PoisonOnKafka(t *testing.T) {
	t.Parallel()
	l := newStage(t, testkit.SharedMySQL(t), fake(t), "")
	l.poisoned(poison)
}

// RocketMQ takes no message without a body and no separators of its own in properties.
func TestD15_B07_PoisonOnRocketMQ(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	broker := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{topics[0]: 4, topics[1]: 4, "later": 2}})
	t.Run("B18_NativeDelay", func(t *testing.T) { nativeDelay(t, broker) })
	l := newStage(t, testkit.SharedMySQL(t), relay.RocketMQ{RocketMQ: broker}, "")
	rows := map[string]func(*relay.Row){
		"dot":       func(r *relay.Row) { r.Topic = "orders.created" },
		"empty":     func(r *relay.Row) { r.Body = []byte{} },
		"null":      func(r *relay.Row) { r.Body = nil },
		"separator": func(r *relay.Row) { r.Headers = map[string]string{"trace": "a\x01b"} },
	}
	for key, change := range poison {
		rows[key] = change
	}
	l.poisoned(rows)
	layoutsOnRocketMQ(t, broker) // which has the broker to itself now
	logOnlyOnRocketMQ(t, broker)
	t.Run("B30_SilenceOfOneMessage", func(t *testing.T) { silenceOfOneMessage(t, broker) })
}

func (l *stage) poisoned(rows map[string]func(*relay.Row)) {
	l.t.Helper()
	l.Start(l.t)
	l.load.Run(l.t, 200, 2)
	for key, change := range rows {
		bad := relay.Row{BizType: "poison", Key: key, Topic: topics[0], Body: []byte("body")}
		change(&bad)
		good := l.load.Writer("beside-" + key).Rows(6)
		for _, r := range good { // each has a key of its own, so the order of the six is not looked at
			l.load.Ledger.Committed(loose(r))
		}
		testkit.Must(l.t, l.table.Insert(l.t.Context(), l.sql, append(append(good[:3:3], bad), good[3:]...)...))
		l.load.Run(l.t, 50, 2)
	}
	l.waitCount(l.load.Ledger.Len(), "status = 2")
	l.waitCount(len(rows), "status = 3")
	if n := l.table.Count(l.t, "status = 3 AND fail_reason <> '' AND biz_type = 'poison'"); n != len(rows) {
		l.t.Errorf("%d of %d poison rows have a reason", n, len(rows))
	}
	l.account()
	if s, err := l.Status(); err != nil || s.Sink.Breaker != "closed" {
		l.t.Errorf("status %+v, %v", s.Sink, err)
	}
	l.stopInTime()
}

func loose(r relay.Row) relay.Row {
	r.Loose = true
	return r
}

// A message that the broker refuses uses its budget try by try, with a due time after each, and ends FAILED; a row's own
// max_retry counts more than the configuration; what an operator sets back is published.
func TestD18_RefusedRows(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	l := newStage(t, testkit.SharedMySQL(t), cluster, "retry: {max: 2, backoff: {base: 100ms, max: 300ms}}")
	l.Start(t)
	fault := cluster.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topics[1], Err: kerr.UnknownServerError, Count: -1})
	for i := range 20 {
		l.row(fmt.Sprint("refused", i), topics[1], "body")
		l.row(fmt.Sprint("taken", i), topics[0], "body")
	}
	l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, max_retry) VALUES " +
		"('order', 'none', 'payments', 'body', 0), ('order', 'four', 'payments', 'body', 4), ('order', 'many', 'payments', 'body', 1000)")
	l.waitCount(20, "status = 2 AND retry_count = 0 AND biz_key LIKE 'taken%'")
	l.waitCount(20, "status = 3 AND retry_count = 2 AND fail_reason <> '' AND biz_key LIKE 'refused%'")
	l.waitCount(1, "status = 3 AND retry_count = 0 AND fail_reason <> '' AND biz_key = 'none'")
	l.waitCount(1, "status = 3 AND retry_count = 4 AND biz_key = 'four'")
	l.waitCount(1, "status <> 3 AND retry_count > 4 AND next_retry_time IS NOT NULL AND biz_key = 'many'")
	l.wait("every FAILED row to be counted", func() bool { // after it was written
		s, err := l.Status()
		if err == nil && s.Sink.Breaker != "closed" {
			t.Fatalf("a refusal is an answer and opens no breaker: %+v", s.Sink)
		}
		return err == nil && s.Throughput.Failed == 22
	})
	if got := l.published(topics[1]); len(got) != 0 {
		t.Errorf("refused messages were published: %v", got)
	}
	fault.Remove()
	l.waitCount(1, "status = 2 AND biz_key = 'many'")
	l.exec("UPDATE t_local_message SET status = 0, retry_count = 0, next_retry_time = NULL, fail_reason = NULL WHERE status = 3")
	l.waitCount(43, "status = 2")
	for key, n := range l.published(topics[1]) {
		if n != 1 {
			t.Errorf("%s was published %d times", key, n)
		}
	}
	l.stopInTime()
}

// Rows of a topic that does not exist wait without losing a try while others flow, and go when it has been made (B34); the
// same when it is deleted and made again under load (B35).
func TestB34_B35_TopicMissingAndMadeAgain(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	l := newStage(t, testkit.SharedMySQL(t), cluster, "")
	l.Start(t)
	for i := range 50 {
		l.row(fmt.Sprint("early", i), "made-later", "body")
	}
	l.load.Run(t, 100, 2)
	l.waitCount(l.load.Ledger.Len(), "status = 2")
	l.wait("the topic to be suspended", func() bool {
		s, err := l.Status()
		return err == nil && len(s.Sink.SuspendedTopics) == 1 && s.Sink.SuspendedTopics[0].Topic == "made-later"
	})
	testkit.Must(t, cluster.CreateTopic("made-later", 2))
	l.waitCount(50, "topic = 'made-later' AND status = 2 AND retry_count = 0")
	if got := l.published("made-later"); len(got) != 50 {
		t.Errorf("%d of 50 messages", len(got))
	}
	wait := l.load.Start(t, 600, 2)
	testkit.Must(t, cluster.DeleteTopic("made-later"))
	for i := range 50 {
		l.row(fmt.Sprint("between", i), "made-later", "body")
	}
	testkit.Must(t, cluster.CreateTopic("made-later", 2))
	for i := range 50 {
		l.row(fmt.Sprint("again", i), "made-later", "body")
	}
	wait()
	l.waitCount(0, "status <> 2 OR retry_count <> 0")
	if got := l.published("made-later"); len(got) != 100 {
		t.Errorf("%d of 100 messages in the topic that was made again", len(got))
	}
	l.settled()
	l.stopInTime()
}
