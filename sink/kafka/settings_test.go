package kafka

import (
	"context"
	"errors"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// settingsOf returns the settings of one topic.
func settingsOf(t *testing.T, s *Sink, topic string) TopicSettings {
	t.Helper()
	all, err := s.Settings(t.Context(), []string{topic, "no.such.topic"})
	if err != nil {
		t.Fatal(err)
	}
	one, exists := all[topic]
	if !exists || len(all) != 1 {
		t.Fatalf("got %+v", all)
	}
	return one
}

func TestB41_SettingsOfTopics(t *testing.T) {
	f := fakekafka.New(t, 3, nil)
	s := newSink(t, f.Addr())
	admin(t, f.Addr(), func(ctx context.Context, a *kadm.Client) error {
		values := map[string]*string{maxMessageBytes: kadm.StringPtr("20000"), minInSyncReplicas: kadm.StringPtr("2")}
		_, err := a.CreateTopic(ctx, 4, 3, values, "copied")
		return err
	})
	if got, want := settingsOf(t, s, "copied"), (TopicSettings{MaxMessageBytes: 20000, Replicas: 3, MinInSync: 2, Deletes: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	f.Fault(testkit.KafkaFault{Key: kmsg.DescribeConfigs, Err: kerr.TopicAuthorizationFailed, Count: 1})
	if got := settingsOf(t, s, "copied"); !errors.Is(got.Err, kerr.TopicAuthorizationFailed) || got.Replicas != 3 || got.MinInSync != 0 {
		t.Errorf("without the right: got %+v", got)
	}
	if all, err := s.Settings(t.Context(), nil); len(all) != 0 || err != nil {
		t.Errorf("no topics: got %+v, %v", all, err)
	}
}

func TestB41_SettingsOfTopicsOnKafka(t *testing.T) {
	k := testkit.SharedKafka(t)
	s := newSink(t, k.Addr())
	topic := createTopic(t, k.Addr(), map[string]string{maxMessageBytes: "30000"})
	if got, want := settingsOf(t, s, topic), (TopicSettings{MaxMessageBytes: 30000, Replicas: 1, MinInSync: 1, Deletes: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
