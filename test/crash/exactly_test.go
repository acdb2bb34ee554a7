package crash

import (
	"context"
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// transactions is a Kafka broker to which the relay publishes in transactions.
type transactions struct {
	relay.Kafka
	name string // the transactional id
}

// Sink implements relay.Broker.
func (k transactions) Sink() string {
	return fmt.Sprintf("kafka: {brokers: [%q], exactly_once: true, transactional_id: %s}", k.Addr(), k.name)
}

// Read implements relay.Broker without the producers: all relays have the same two, one after the other.
func (k transactions) Read(ctx context.Context, topic string) ([]relay.Record, error) {
	records, err := k.Kafka.Read(ctx, topic)
	for i := range records {
		records[i].Producer = ""
	}
	return records, err
}

// inTransactions opens the shared broker with a topic, and with the state topic of a relay.
func inTransactions(t *testing.T, topic string) relay.Broker {
	kafka := testkit.SharedKafka(t)
	testkit.Must(t, kafka.CreateTopic(t.Context(), topic, 4, nil))
	testkit.Must(t, kafka.CreateTopic(t.Context(), "__"+topic+"_state", 1, map[string]string{"cleanup.policy": "compact"}))
	return transactions{relay.Kafka{Kafka: kafka}, topic}
}

// SIGKILL between the broker and the journal, and at any time: a reader of committed records gets each row once.
func TestP3_ExactlyOnceAfterKill(t *testing.T) {
	onPairs(t, map[string]opens{"kafka": inTransactions}, func(t *testing.T, flavor testkit.Flavor, open opens) {
		readBackAfterKills(t, flavor, open, "", "", false)
	})
}

// The same when another relay takes over, with a state directory of its own: after SIGKILL, SIGSTOP for longer than the lease, and a cut between
// the relay and the database.
func TestP3_ExactlyOnceAfterTakeOver(t *testing.T) {
	onPairs(t, map[string]opens{"kafka": inTransactions}, func(t *testing.T, flavor testkit.Flavor, open opens) {
		readBackAfterTakeOvers(t, flavor, open, "", false, "kill", "stop", "hole")
	})
}
