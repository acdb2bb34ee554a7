package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
)

// topicOf is a topic of the fake cluster.
type topicOf struct {
	replicas int16
	configs  map[string]string
}

// fakeKafka is a cluster of three brokers with these topics; it returns the cluster and a configuration for it.
func fakeKafka(t *testing.T, topics map[string]topicOf) (*kfake.Cluster, *kafka.Section) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	testkit.Must(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	testkit.Must(t, err)
	defer client.Close()
	for name, topic := range topics {
		values := map[string]*string{}
		for k, v := range topic.configs {
			values[k] = kadm.StringPtr(v)
		}
		_, err := kadm.NewClient(client).CreateTopic(t.Context(), 2, topic.replicas, values, name)
		testkit.Must(t, err)
	}
	return cluster, &kafka.Section{Brokers: cluster.ListenAddrs()[:1], Compression: "none", MaxMessageBytes: 1_000_012}
}

// asked lets doctor ask the broker about topics as if rows named them, each with a body of that many bytes, and returns what
// it found, one line each, with the broker's address written as HOST.
func asked(t *testing.T, cfg *kafka.Section, topics []string, largest map[string]int64) string {
	t.Helper()
	var lines []string
	for _, f := range broker(&config.Config{Sink: config.Use("kafka", cfg)}).Check(t.Context(), topics, largest) {
		line := fmt.Sprintf("%s %s: %s", f.Severity, f.Subject, f.What)
		for fix := range strings.Lines(f.Fix) {
			line += "\n  " + strings.TrimSpace(fix)
		}
		lines = append(lines, line)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), cfg.Brokers[0], "HOST")
}

// B41: acks=all waits for the replicas that are in step, however few.
func TestB41_DoctorSaysWhatAnAcknowledgementIsWorth(t *testing.T) {
	_, cfg := fakeKafka(t, map[string]topicOf{
		"alone":  {replicas: 1},
		"copied": {replicas: 3, configs: map[string]string{"min.insync.replicas": "2"}},
		"never":  {replicas: 2, configs: map[string]string{"min.insync.replicas": "3"}},
		"weak":   {replicas: 3},
	})
	want := `ok sink: the broker answers
ok topic alone: exists
ok topic copied: exists
ok topic never: exists
ok topic weak: exists
warning topic alone: it has one replica: an acknowledged message is on one disk, and is lost with it though its row is SENT
  raise its replicas to 3 (kafka-reassign-partitions.sh), and then
  kafka-configs.sh --bootstrap-server HOST --alter --entity-type topics --entity-name alone --add-config min.insync.replicas=2
ok topic copied: an acknowledged message has at least 2 copies (replicas: 3)
fault topic never: min.insync.replicas is 3 and there are 2 replicas: the topic accepts no message; its rows would wait in the table
  kafka-configs.sh --bootstrap-server HOST --alter --entity-type topics --entity-name never --add-config min.insync.replicas=1
warning topic weak: min.insync.replicas is 1: while the other replicas (it has 3) are away or behind, acks=all means one copy; a message acknowledged then is lost with that broker though its row is SENT
  kafka-configs.sh --bootstrap-server HOST --alter --entity-type topics --entity-name weak --add-config min.insync.replicas=2`
	if got := asked(t, cfg, []string{"alone", "copied", "never", "weak"}, nil); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// B38: what a topic takes is compared with what the client sends and with the rows.
func TestB38_DoctorComparesTheLimits(t *testing.T) {
	two := map[string]string{"min.insync.replicas": "2"}
	_, cfg := fakeKafka(t, map[string]topicOf{
		"low":  {replicas: 3, configs: map[string]string{"min.insync.replicas": "2", "max.message.bytes": "20000"}},
		"full": {replicas: 3, configs: map[string]string{"min.insync.replicas": "2", "max.message.bytes": "20000"}},
		"wide": {replicas: 3, configs: two},
	})
	largest := map[string]int64{"low": 19_999, "full": 20_000, "wide": 900_000}
	want := `ok sink: the broker answers
ok topic low: exists
ok topic full: exists
ok topic wide: exists
ok topic low: an acknowledged message has at least 2 copies (replicas: 3)
warning topic low: its max.message.bytes is 20000, max_message_bytes here is 1000012: batches between the two are refused and sent again one by one
  set sink.kafka.max_message_bytes to 20000, or
  kafka-configs.sh --bootstrap-server HOST --alter --entity-type topics --entity-name low --add-config max.message.bytes=1000012
ok topic full: an acknowledged message has at least 2 copies (replicas: 3)
warning topic full: one of its newest rows has a body of 20000 bytes, and its max.message.bytes is 20000: such rows become FAILED
  kafka-configs.sh --bootstrap-server HOST --alter --entity-type topics --entity-name full --add-config max.message.bytes=1000012
  or keep large content elsewhere
ok topic wide: an acknowledged message has at least 2 copies (replicas: 3)`
	if got := asked(t, cfg, []string{"low", "full", "wide"}, largest); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// For an account that may write and not look doctor says so, and nothing is guessed.
func TestB41_DoctorWithoutTheRightToLook(t *testing.T) {
	cluster, cfg := fakeKafka(t, map[string]topicOf{"orders": {replicas: 3}})
	testkit.FaultKafka(t, cluster, testkit.KafkaFault{Key: kmsg.DescribeConfigs, Err: kerr.TopicAuthorizationFailed, Count: -1})
	got := asked(t, cfg, []string{"orders"}, nil)
	if !strings.Contains(got, "warning topic orders: its settings cannot be read") || !strings.Contains(got, "grant DESCRIBE_CONFIGS") ||
		strings.Contains(got, "acknowledged") {
		t.Errorf("got\n%s", got)
	}
}

// The topics are those of the rows, each once, and each with the largest body of its own rows.
func TestB41_DoctorAsksForTheTopicsOfTheRows(t *testing.T) {
	cfg := source(t, testkit.SharedMySQL(t), "topics", relayGrants)
	_, section := fakeKafka(t, map[string]topicOf{
		"small": {replicas: 3, configs: map[string]string{"max.message.bytes": "5000"}},
		"large": {replicas: 1, configs: map[string]string{"max.message.bytes": "5000"}},
	})
	cfg.Sink = config.Use("kafka", section)
	testkit.Exec(t, testkit.SharedMySQL(t).Root(), "INSERT INTO "+cfg.Tables[0].Name+
		" (biz_type, biz_key, topic, message_body) VALUES ('o', '1', 'small', 'x'), ('o', '2', 'large', REPEAT('x', 6000)), ('o', '3', 'large', 'x')")
	all := Doctor(t.Context(), cfg)
	if !has(all, server.Warning, "topic small", "min.insync.replicas is 1") || !has(all, server.Warning, "topic large", "one replica") ||
		!has(all, server.Warning, "topic large", "6000 bytes", "FAILED") || has(all, server.Warning, "topic small", "FAILED") {
		t.Errorf("got\n%s", findings(all))
	}
	if n := strings.Count(findings(all), "topic large: exists"); n != 1 {
		t.Errorf("asked %d times for one topic", n)
	}
}

// With exactly_once doctor looks at the state topic, and begins no transaction, which would end one of a running relay.
func TestDoctorExactlyOnce(t *testing.T) {
	state := "__canal_outbox_state"
	for name, c := range map[string]struct {
		topics map[string]topicOf
		want   []string
	}{
		"no state topic": {map[string]topicOf{}, []string{"fault topic " + state, "kafka-topics.sh --bootstrap-server HOST --create"}},
		"with a retention": {
			map[string]topicOf{state: {1, map[string]string{"cleanup.policy": "compact,delete"}}}, []string{"fault topic " + state, "cleanup.policy=compact"},
		},
		"small records": {
			map[string]topicOf{state: {1, map[string]string{"cleanup.policy": "compact", "max.message.bytes": "5000"}}}, []string{"fault topic " + state, "max.message.bytes=1000000"},
		},
		"one replica": {map[string]topicOf{state: {1, map[string]string{"cleanup.policy": "compact"}}}, []string{"warning topic " + state, "one replica"}},
		"as it should be": {
			map[string]topicOf{state: {3, map[string]string{"cleanup.policy": "compact", "min.insync.replicas": "2"}}}, []string{"OK topic " + state},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, cfg := fakeKafka(t, c.topics)
			cfg.ExactlyOnce, cfg.TransactionalID = true, "canal_outbox"
			cluster.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				t.Error("doctor begins an epoch")
				return nil, nil, false
			})
			found := asked(t, cfg, nil, nil)
			for _, want := range c.want {
				if !strings.Contains(strings.ToLower(found), strings.ToLower(want)) {
					t.Errorf("%q is not in\n%s", want, found)
				}
			}
		})
	}
}
