package sim

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/kafka/coordinatortest"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
)

// The model of the coordinator keeps the rules that Kafka keeps: sink/kafka TestCoordinatorOnKafka.
func TestTheModelIsTheCoordinator(t *testing.T) {
	coordinatortest.Run(t, func(t *testing.T, rule func(*testing.T, coordinatortest.Brokers)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1)
			w.plan.quiet, w.plan.healed, w.plan.team, w.plan.broker, w.plan.partition = true, 0, nil, nil, nil
			rule(t, coordinatortest.Brokers{
				Process: func() kafka.Coordinator {
					w.mu.Lock()
					defer w.mu.Unlock()
					return coordinator{&exactModel{s: newSink(w.incarnate(w.disks[0], life{end: endRun}, nil)), sent: map[string]*flight{}}}
				},
				Record: func(e *ledger.Entry) *kgo.Record {
					return &kgo.Record{Topic: stateTopic, Key: e.Key(), Value: e.Encode(), Context: context.Background()}
				},
			})
			for _, v := range w.violations {
				t.Error(v)
			}
		})
	})
}
