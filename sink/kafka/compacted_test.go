package kafka

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// A compacted topic of a real broker, with a NULL body, an empty body and a message without a key. NULL deletes the key's value,
// an empty body does not; the broker refuses a message without a key for good, without effect on its neighbours (B39).
func TestB39_CompactedTopic(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	k := testkit.NewKafka(t, testkit.KafkaOptions{Config: map[string]string{
		"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "2097152", // the cleaner runs often
	}})
	topic := createTopic(t, k.Addr(), map[string]string{
		"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100", "delete.retention.ms": "0", "max.compaction.lag.ms": "100",
	})
	s := newSink(t, k.Addr())
	all := messages(topic, 7)
	for i, change := range []func(*outbox.Message){
		func(m *outbox.Message) { m.Key, m.Body = "null", []byte("first") },
		func(m *outbox.Message) { m.Key, m.Body = "empty", []byte("first") },
		func(m *outbox.Message) { m.Key, m.Body = "kept", []byte("first") },
		func(m *outbox.Message) { m.Key, m.Body = "null", nil },
		func(m *outbox.Message) { m.Key, m.Body = "empty", []byte{} },
		func(m *outbox.Message) { m.Key, m.Body = "", []byte("a body and no key") },
		func(m *outbox.Message) { m.Key, m.Body = "", nil },
	} {
		change(all[i])
	}
	results := publish(t, s, all...)
	wantClass(t, outbox.ClassNone, results[:5]...)
	wantClass(t, outbox.ClassPermanent, results[5:]...)
	for _, r := range results[5:] {
		if !strings.Contains(strings.ToLower(r.Reason), "record") {
			t.Errorf("the reason is %q", r.Reason)
		}
	}
	want := map[string]string{"null": "NULL", "empty": "''", "kept": "'first'"}
	if got := lastBodies(t, k.Addr(), topic); !maps.Equal(got, want) {
		t.Fatalf("the last bodies are %v, want %v", got, want)
	}
	// The cleaner works on closed segments: each further message of other keys closes one.
	want = map[string]string{"empty": "''", "kept": "'first'"}
	var got map[string]string
	testkit.WaitFor(t, 2*time.Minute, "the broker to compact the topic", func() bool {
		fillers := messages(topic, 8)
		for i, m := range fillers {
			m.Key, m.Body = "filler"+string(rune('0'+i)), []byte("filler")
		}
		publish(t, s, fillers...)
		got = lastBodies(t, k.Addr(), topic)
		maps.DeleteFunc(got, func(key, _ string) bool { return strings.HasPrefix(key, "filler") })
		_, there := got["null"]
		return !there
	})
	if !maps.Equal(got, want) {
		t.Errorf("after compaction %v, want %v", got, want)
	}
}

// lastBodies returns the last body of each key in the topic: NULL, or the text in quotes.
func lastBodies(t *testing.T, addr, topic string) map[string]string {
	t.Helper()
	bodies := map[string]string{}
	for _, m := range stored(t, addr, topic) {
		bodies[m.Key] = "'" + string(m.Body) + "'"
		if m.Body == nil {
			bodies[m.Key] = "NULL"
		}
	}
	return bodies
}

// A broker that takes no record as old as those of this relay: the clocks differ, or the topic is set so. No row is at fault, and each is sent when that
// is mended.
func TestE2_TimesThatABrokerRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	const setting = "message.timestamp.before.max.ms"
	addr := testkit.SharedKafka(t).Addr()
	topic := createTopic(t, addr, map[string]string{setting: "0"})
	s := newSink(t, addr)
	testkit.WaitFor(t, time.Minute, "a message that arrives a millisecond later", func() bool {
		result := publish(t, s, messages(topic, 1)...)[0]
		if result.Class != outbox.ClassNone {
			wantClass(t, outbox.ClassOutage, result)
			if !strings.Contains(result.Reason, setting) {
				t.Errorf("the reason is %q", result.Reason)
			}
		}
		return result.Class != outbox.ClassNone
	})
	admin(t, addr, func(ctx context.Context, c *kadm.Client) error {
		value := "86400000"
		_, err := c.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}, topic)
		return err
	})
	testkit.WaitFor(t, time.Minute, "the broker to take messages", func() bool { return publish(t, s, messages(topic, 1)...)[0].Class == outbox.ClassNone })
}
