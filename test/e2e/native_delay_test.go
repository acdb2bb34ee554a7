package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// nativeDelaySink turns the broker's own timers on.
type nativeDelaySink struct{ relay.RocketMQ }

func (q nativeDelaySink) Sink() string {
	return fmt.Sprintf("rocketmq: {name_servers: [%q], native_delay: true}", q.NameServer())
}

// A row with a due time is SENT at once, and RocketMQ stores the message for consumers not before that time. What lies beyond its limit
// of three days waits in the table.
func nativeDelay(t *testing.T, broker *testkit.RocketMQ) {
	l := newStage(t, testkit.SharedMySQL(t), nativeDelaySink{relay.RocketMQ{RocketMQ: broker}}, "")
	l.Start(t)
	l.row("now", "later", "{}") // the broker takes messages from now on
	l.waitCount(1, "biz_key = 'now' AND status = 2")
	l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, next_retry_time) VALUES " +
		"('later', 'days', 'later', '{}', NOW(3) + INTERVAL 4 DAY), ('later', 'seconds', 'later', '{}', NOW(3) + INTERVAL 6 SECOND)")
	l.waitCount(1, "biz_key = 'seconds' AND status = 2")
	var milli int64
	var early bool
	testkit.Must(t, l.sql.QueryRow("SELECT CAST(UNIX_TIMESTAMP(next_retry_time) * 1000 AS SIGNED), next_retry_time > NOW(3) FROM t_local_message WHERE biz_key = 'seconds'").Scan(&milli, &early))
	if !early {
		t.Error("the row became SENT when it was due and not before")
	}
	due := time.UnixMilli(milli)
	var found []testkit.RocketMQMessage
	l.wait("the message", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var err error
		found, err = testkit.ReadRocketMQTopic(ctx, broker.NameServer(), "later")
		testkit.Must(t, err)
		found = slices.DeleteFunc(found, func(m testkit.RocketMQMessage) bool { return m.ID() == "order:now" })
		return len(found) > 0
	})
	if len(found) != 1 || found[0].ID() != "later:seconds" || found[0].Stored.Before(due) {
		t.Errorf("%d messages, the first is %s, stored %v after its time", len(found), found[0].ID(), found[0].Stored.Sub(due))
	}
	t.Logf("delivered %v after its time", found[0].Stored.Sub(due))
	l.waitCount(1, "biz_key = 'days' AND status = 0 AND retry_count = 0")
	l.stopInTime()
}
