package e2e

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// The broker goes away in each way there is, again and again, while the application writes. Nothing is lost, no row loses a
// try (D16), nothing comes twice but what was on its way without an answer, and neither goroutines nor memory grow (B12, B37).
func TestB12_B30_B37_D16_RepeatedOutages(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	l := newStage(t, testkit.SharedMySQL(t), cluster, "")
	l.Start(t)
	l.load.Run(t, 500, 2)
	l.settled()
	before := l.metrics()
	const rounds, rows = 4, 400
	copies := 0
	for round := range rounds {
		for name, trouble := range outages(t, cluster) {
			end := trouble()
			l.load.Run(t, rows, 3)
			if round == 0 {
				l.wait("the breaker to open: "+name, func() bool { return l.breaker() == "open" })
			}
			end()
			account := l.settledAfterOutages()
			if n := account.Duplicates() - copies; n > 0 {
				t.Errorf("round %d, %s: %d messages came twice, though an idempotent producer rides through this", round, name, n)
			}
			copies = account.Duplicates()
		}
	}
	l.wait("the goroutines to be as many as before", func() bool {
		return l.metrics()["go_goroutines"] <= before["go_goroutines"]+5
	})
	after := l.metrics()
	t.Logf("goroutines %v -> %v, memory %.0f MB -> %.0f MB", before["go_goroutines"], after["go_goroutines"],
		before["process_resident_memory_bytes"]/1e6, after["process_resident_memory_bytes"]/1e6)
	if grown := after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"]; grown > 64e6 {
		t.Errorf("the memory grew by %.0f MB over %d outages", grown/1e6, 4*rounds)
	}
	if after["internal_errors_total"] != 0 {
		t.Errorf("%v internal errors", after["internal_errors_total"])
	}
	l.stopInTime()
}

// outages are the ways in which a broker goes away; each returns what brings it back.
func outages(t *testing.T, cluster *fakekafka.Cluster) map[string]func() (end func()) {
	return map[string]func() (end func()){
		"refused": func() func() {
			cluster.Stop()
			return func() { testkit.Must(t, cluster.Start()) }
		},
		"busy": func() func() {
			return cluster.Fault(testkit.KafkaFault{Key: kmsg.Produce, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
		},
		"swallowed": func() func() {
			cluster.Swallow(true)
			return func() { cluster.Swallow(false) }
		},
		"replies lost": func() func() { // what the broker did is not done again: the client repeats it under the same sequence numbers (B30)
			cluster.LoseReplies(true)
			return func() { cluster.LoseReplies(false) }
		},
	}
}

// A stop ends in time whatever the broker does, at the worst moments: with everything swallowed, and in the middle of a drain.
// What had no answer is published after the next start.
func TestB30_StopAtAnyTime(t *testing.T) {
	relay.Long(t)
	for _, c := range []struct {
		name    string
		trouble func(l *stage, cluster *fakekafka.Cluster)
		fix     func(*fakekafka.Cluster)
	}{
		{"Swallowed", func(l *stage, cluster *fakekafka.Cluster) {
			cluster.Swallow(true)
			l.load.Run(l.t, 300, 3)
			l.wait("messages in flight", func() bool { return l.inFlight() > 0 })
		}, func(cluster *fakekafka.Cluster) { cluster.Swallow(false) }},
		{"RepliesLost", func(l *stage, cluster *fakekafka.Cluster) {
			cluster.LoseReplies(true)
			l.load.Run(l.t, 300, 3)
			l.wait("the breaker to open", func() bool { return l.breaker() == "open" })
		}, func(cluster *fakekafka.Cluster) { cluster.LoseReplies(false) }},
		{"Refused", func(l *stage, cluster *fakekafka.Cluster) {
			cluster.Stop()
			l.load.Run(l.t, 300, 3)
			l.wait("the breaker to open", func() bool { return l.breaker() == "open" })
		}, func(cluster *fakekafka.Cluster) { testkit.Must(t, cluster.Start()) }},
		{"TroubleDuringTheDrain", func(l *stage, cluster *fakekafka.Cluster) {
			l.load.Run(l.t, 3000, 4)
			cluster.Swallow(true)
		}, func(cluster *fakekafka.Cluster) { cluster.Swallow(false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t)
			l := newStage(t, testkit.SharedMySQL(t), cluster, "")
			l.Start(t)
			l.load.Run(t, 100, 2)
			c.trouble(l, cluster)
			l.stopInTime()
			c.fix(cluster)
			l.Start(t)
			account := l.settled()
			t.Logf("%d messages sent again", account.Duplicates())
			l.stopInTime()
		})
	}
}

// A stop while the log's backlog drains: at the next start the relay continues where it stopped, and no answered row is sent
// twice.
func TestB30_StopInTheMiddleOfABacklog(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	l := newStage(t, testkit.SharedMySQL(t), cluster, "")
	l.Start(t)
	l.stopInTime()
	l.load.Run(t, 6000, 4)
	for n := range 3 {
		l.Start(t)
		want := 500 * (n + 1)
		l.wait("a part of the backlog", func() bool { return l.table.Count(t, "status = 2") >= want })
		l.stopInTime()
	}
	l.Start(t)
	if account := l.settled(); account.Duplicates() > 0 {
		t.Errorf("%d messages came twice over clean stops", account.Duplicates())
	}
	l.stopInTime()
}

// A stop while no broker can be reached gives back what was never sent: the row is PENDING again, its attempts are not counted, and the
// process ends long before the row's claim would.
func TestG47_AStopWithAnUnreachableBrokerReleasesClaims(t *testing.T) {
	onBothAtOnce(t, func(t *testing.T, flavor testkit.Flavor) {
		cluster := fake(t)
		l := newStage(t, testkit.SharedDatabase(t, flavor), cluster, "")
		cluster.Stop()
		l.row("a", topics[0], "x") // the sweep of the start finds and claims it
		l.Start(t)
		l.waitCount(1, "status = 1")
		l.stopInTime()
		l.waitCount(1, "status = 0 AND retry_count = 0")
	})
}

func (l *stage) inFlight() int {
	s, err := l.Status()
	if err != nil {
		return 0
	}
	return s.InFlight.Messages
}
