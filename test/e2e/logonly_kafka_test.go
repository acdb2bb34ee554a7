package e2e

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// On a real Kafka: rows that are deleted at once are published once each, over a kill between them what the journal has is not sent again,
// and a clean stop makes no copy.
func TestLogOnlyOnKafka(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		broker := testkit.SharedKafka(t)
		aggregate := topicName(t.Name())
		testkit.Must(t, broker.CreateTopic(t.Context(), "outbox.event."+aggregate, 4, nil))
		l := &logOnly{everyLayout: newEveryLayout(t, testkit.SharedDatabase(t, flavor), relay.Kafka{Kafka: broker}, layouts.LogOnly()...)}
		l.Start(t)
		for n := 1; n <= 10; n++ {
			l.event(n, aggregate, deletes)
		}
		l.has(aggregate, 1, 10)
		// The broker has them before the relay knows that it has, and then the journal is empty as well.
		at := l.end(flavor == testkit.MySQL)
		l.wait("the checkpoint to pass them", func() bool {
			l.exec("UPDATE purchase SET amount = amount + 1 WHERE id = 1") // whatever lies between, the relay continues with the log
			c, err := l.Client().Checkpoint(t.Context())
			return err == nil && c.Position.Compare(at) >= 0 && c.Journal == 0
		})
		l.Kill()
		for n := 11; n <= 20; n++ {
			l.event(n, aggregate, deletes)
		}
		l.Start(t)
		if copies := l.has(aggregate, 1, 20); !once(copies) {
			t.Errorf("copies %v", copies)
		}
		l.stopInTime()
		l.Start(t)
		l.event(21, aggregate, deletes)
		if copies := l.has(aggregate, 1, 21); !once(copies) {
			t.Errorf("after a clean stop: copies %v", copies)
		}
		l.stopInTime()
	})
}
