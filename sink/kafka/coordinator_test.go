package kafka_test

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/kafka/coordinatortest"
)

func TestCoordinatorOnFakeBroker(t *testing.T) {
	coordinatortest.Run(t, func(t *testing.T, rule func(*testing.T, coordinatortest.Brokers)) {
		process, record := kafka.OnBrokers(t, kafka.NewFake(t).Addr())
		rule(t, coordinatortest.Brokers{Process: process, Record: record})
	})
}

func TestCoordinatorOnKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	coordinatortest.Run(t, func(t *testing.T, rule func(*testing.T, coordinatortest.Brokers)) {
		process, record := kafka.OnBrokers(t, broker.Addr())
		rule(t, coordinatortest.Brokers{Process: process, Record: record})
	})
}
