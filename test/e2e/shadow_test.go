package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// While a poller does the work, a shadow sends nothing and writes nothing. It reports what it would have sent and what the
// poller has marked. After the poller has stopped, a relay that starts on the same state sends the remaining rows, each once.
func TestShadowThenSwitch(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), frequentSweeps)
		l.row("before", topics[0], "of the time before the shadow")
		l.Start(t, "--shadow")
		for n := range 20 {
			l.row(fmt.Sprint("polled-", n), topics[0], "body")
		}
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, next_retry_time) VALUES ('order', 'delayed', ?, 'body', NOW(3) + INTERVAL 3 SECOND)", topics[0])
		report := func() string {
			s, err := l.Status()
			testkit.Must(t, err)
			return s.Shadow
		}
		l.wait("the rows to be seen", func() bool { return strings.HasPrefix(report(), "would have sent 20 messages") })
		const untouched = "status = 0 AND retry_count = 0 AND last_exec_time IS NULL AND updated_by IS NULL"
		l.waitCount(22, untouched)
		l.exec("UPDATE t_local_message SET status = 2, updated_by = 'poller' WHERE biz_key LIKE 'polled%' AND biz_key <> 'polled-7'")
		l.wait("the poller's marks to be seen", func() bool { return strings.Contains(report(), "has marked 19 of them") })
		if text := report(); !strings.Contains(text, "1 are not marked yet") {
			t.Error(text)
		}
		if records := relay.ReadAll(t, l.broker, topics...); len(records) > 0 {
			t.Errorf("the shadow sent %d messages", len(records))
		}
		l.waitCount(1, "biz_key = 'delayed' AND next_retry_time < NOW(3) - INTERVAL 1 SECOND") // its time has come, and a timer's with it
		l.waitCount(3, untouched)
		l.stopInTime()
		if log := l.LogTail(1000); !strings.Contains(log, "shadow: would have sent 20 messages; the other sender has marked 19 of them") {
			t.Error("the log has no report at the end of the shadow")
		}

		l.row("between", topics[0], "while no sender ran")
		l.Start(t)
		l.waitCount(0, "status <> 2")
		l.stopInTime()
		sent := map[string]int{}
		for _, r := range relay.ReadAll(t, l.broker, topics...) {
			sent[r.Key]++
		}
		if len(sent) != 4 || sent["delayed"] != 1 || sent["before"] != 1 || sent["between"] != 1 || sent["polled-7"] != 1 {
			t.Errorf("sent after the switch: %v", sent)
		}
	})
}
