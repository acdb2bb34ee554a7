package kafka

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
)

// OnBrokers returns the coordinator of a process, with a state topic of its own, and what makes the records of entries.
func OnBrokers(t testing.TB, addr string) (process func() Coordinator, record func(*ledger.Entry) *kgo.Record) {
	name := fmt.Sprintf("relay.%x", rand.Uint64())
	testkit.Must(t, testkit.CreateKafkaTopic(t.Context(), addr, stateTopic(name), 1, map[string]string{"cleanup.policy": "compact"}))
	process = func() Coordinator { return &brokers{openExactly(t, addr).Sink, name} }
	record = func(e *ledger.Entry) *kgo.Record {
		d := &newBatch([]*outbox.Message{{Topic: stateTopic(name), Partition: 0}}, nil).deliveries[0]
		d.record = kgo.Record{Topic: stateTopic(name), Key: e.Key(), Value: e.Encode(), Context: d}
		return &d.record
	}
	return process, record
}

// NewFake starts a fake cluster.
var NewFake = newFake
