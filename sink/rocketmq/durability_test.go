package rocketmq

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// A real primary that must wait for a replica and has none stores the message and answers FLUSH_SLAVE_TIMEOUT.
func TestG29_RealBrokerWithoutItsReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	r := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{"orders": 1}, Config: map[string]string{
		"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2", "slaveTimeout": "200", "waitTimeMillsInSendQueue": "10000",
	}})
	for durability, want := range map[string]outbox.Class{"strict": outbox.ClassUnknown, "lenient": outbox.ClassNone} {
		section := NewSection()
		section.NameServers, section.Durability = []string{r.NameServer()}, durability
		o := send(t, startSink(t, *section), message("orders", durability)).want(want)[0]
		if !o.LessDurable {
			t.Errorf("%s: %+v", durability, o)
		}
		t.Logf("%s: %+v", durability, o)
	}
	readAll(t, r, "orders", 2) // it has stored both
}
