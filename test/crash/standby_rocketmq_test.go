package crash

import (
	"flag"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

var freezes = flag.Int("freezes", 10, "how often the active relay is stopped in the middle of sends to RocketMQ, with -long")

// The RocketMQ client does not check the lease: the sink checks immediately before it calls the client. A relay that is stopped
// (SIGSTOP) between the two sends the checked requests when it continues: at most one per queue. This counts how often that
// happens under load.
func TestFreezesInTheMiddleOfSendsToRocketMQ(t *testing.T) {
	if !*long {
		t.Skip("with -long: it measures, for a minute")
	}
	broker := relay.RocketMQ{RocketMQ: testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{topic(0): 8}})}
	g := newGroupOn(t, broker, testkit.SharedMySQL(t), 2, nil)
	stop := g.loads[0].StartPaced(t, 4, 2*time.Millisecond)
	g.more(t)
	g.positioned(t)
	active := 0
	for range *freezes {
		old := active
		active = faults["stop"](t, g, old)
		g.awaitState(t, g.relays[old], "standby")
	}
	stop()

	stored, err := testkit.ReadRocketMQTopic(t.Context(), broker.NameServer(), topic(0))
	testkit.Must(t, err)
	late, stops := 0, map[time.Time]bool{}
	for _, m := range stored {
		if m.Stored.Sub(m.Born) > time.Second { // a stop lasts until the lease has gone to another relay, which is longer
			late++
			stops[m.Stored.Truncate(time.Second)] = true
		}
	}
	t.Logf("%d messages, stopped %d times: %d messages were sent on waking, after %d of the stops", len(stored), *freezes, late, len(stops))
	if len(stops) > *freezes {
		t.Error("messages come late at other times than after a stop")
	}
	for _, r := range g.relays {
		r.Stop(t)
	}
}
