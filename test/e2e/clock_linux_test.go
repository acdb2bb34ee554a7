package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// D13: the database's clock is behind ours, jumps ahead by more than an hour, and back by more than that. What is due is the
// database's to say, a claim that is ahead of the clock holds no row, and lag and latency stay true.
func TestD13_DatabaseClock(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, Clock: true})
		set := func(offset time.Duration) { testkit.Must(t, db.SetClock(t.Context(), offset)) }
		set(-10 * time.Minute)
		l := newLab(t, db, frequentSweeps)
		l.start()
		want := keys("before", 20)
		l.commit(want...)
		l.sent()
		l.timely()

		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, next_retry_time) " +
			"VALUES ('order', 'delayed', 'orders', 'body of delayed', NOW(3) + INTERVAL 1 HOUR)")
		l.swept()
		if n := len(l.records()["delayed"]); n > 0 {
			t.Fatal("a row that is due in an hour was published")
		}
		set(70 * time.Minute)
		l.commit("later")
		l.sent()
		// The claim of a process that is gone. The sweep may take it over at once when the clock is back before it.
		l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, status, last_exec_time) " +
			"VALUES ('order', 'claimed', 'orders', 'body of claimed', 1, NOW(3))")

		set(-30 * time.Minute)
		want = append(want, "delayed", "later", "claimed")
		l.wait("the lag to be true again, under traffic", func() bool {
			worst := 0.0
			for range 20 { // a heartbeat, which has no lag, may come in between
				key := fmt.Sprint("back", len(want))
				l.commit(key)
				want = append(want, key)
				worst = max(worst, l.metric("binlog_lag_seconds"))
			}
			return worst < 60
		})
		l.sent()
		l.account(want...)
		l.wantGaps()
	})
}

// timely checks that the clocks' difference shows neither in the lag nor in the latency.
func (l *lab) timely() {
	l.t.Helper()
	m, err := relay.ReadMetrics(l.dir)
	testkit.Must(l.t, err)
	latency := m.Only(l.t, "publish_latency_seconds").GetHistogram()
	n, sum := float64(latency.GetSampleCount()), latency.GetSampleSum()
	if lag := m.Sum("binlog_lag_seconds"); n == 0 || sum/n > 60 || lag > 60 {
		l.t.Errorf("%v messages took %v s, the lag is %v s", n, sum, lag)
	}
}
