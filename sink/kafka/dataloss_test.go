package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// B44: a broker that has forgotten the producer, as after an unclean election, may have lost messages, and reports only that a
// sequence is out of order. The loss is counted and logged; these messages are sent again, once, and the next ones too.
func TestB44_DataLossStopsNothing(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	core, logs := observer.New(zap.WarnLevel)
	s, err := open(testConfig(f.Addr()), zap.New(core), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	all := messages(topic, 9)
	wantClass(t, outbox.ClassNone, publish(t, s, all[:3]...)...)
	f.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topic, Err: kerr.OutOfOrderSequenceNumber})
	wantClass(t, outbox.ClassNone, publish(t, s, all[3:6]...)...)
	wantClass(t, outbox.ClassNone, publish(t, s, all[6:]...)...)
	for id, n := range copies(t, f.Addr(), topic) {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	testkit.WaitFor(t, patience, "the loss to be counted and logged", func() bool {
		logged := logs.FilterMessageSnippet("has lost messages").FilterField(zap.String("topic", topic)).Len()
		return logged > 0 && count(t, s.metrics.dataLoss) == float64(logged)
	})
}
