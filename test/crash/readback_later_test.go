package crash

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A crash of the machine ends the broker with the relay, and the relay comes back first. It waits for the broker, also after a stop meanwhile, finds
// what it had sent, and sends nothing twice.
func TestP3_ReadBackFromABrokerThatComesBackLater(t *testing.T) {
	relay.Long(t)
	for kind, open := range map[string]func(t *testing.T, topic string) (relay.Broker, *testkit.Server){
		"kafka": func(t *testing.T, topic string) (relay.Broker, *testkit.Server) {
			kafka := testkit.NewKafka(t, testkit.KafkaOptions{})
			testkit.Must(t, kafka.CreateTopic(t.Context(), topic, 4, nil))
			return relay.Kafka{Kafka: kafka}, kafka.Server
		},
		"rocketmq": func(t *testing.T, topic string) (relay.Broker, *testkit.Server) {
			broker := brokers["rocketmq"](t, topic)
			return broker, broker.(relay.RocketMQ).Broker
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var server *testkit.Server
			b := newLoadBed(t, testkit.MySQL, func(t *testing.T, topic string) (broker relay.Broker) {
				broker, server = open(t, topic)
				return broker
			}, "", patient)
			b.stop(t)
			at := b.relay.StartUntil(t, "before-journal", 3)
			b.relay.AwaitConnected(t)
			b.load.RunUntil(t, b.relay, at, 3)
			b.lateBeforeKill(t)
			b.relay.Kill()
			testkit.Must(t, server.Kill())
			for n := range 2 {
				if n > 0 {
					b.stop(t)
				}
				b.relay.Start(t)
				testkit.WaitFor(t, patience, "the relay to miss the broker", func() bool {
					return strings.Count(b.relay.Log(t), "the broker does not answer: rows that the last process may have sent wait") > n
				})
			}
			testkit.Must(t, server.Start(t.Context()))
			account := b.account(t)
			if found := b.relay.Metrics(t).Sum("read_back_found_total"); account.Duplicates() > 0 || found == 0 {
				t.Errorf("%d copies of %d rows, %v found in the topic", account.Duplicates(), b.load.Ledger.Len(), found)
			}
			b.stop(t)
		})
	}
}
