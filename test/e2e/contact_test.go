package e2e

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A broker that cannot be reached, or not in the way it is configured, is reported at the start, before any row: once in the log,
// in clear and before whatever the client library says, and in status. No row loses an attempt (D16).
func TestD16_BrokerNotReachedAtStart(t *testing.T) {
	t.Parallel()
	free := testkit.FreeAddress(t)
	users, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", "right"))
	testkit.Must(t, err)
	defer users.Close()
	plain, err := kfake.NewCluster(kfake.NumBrokers(1))
	testkit.Must(t, err)
	defer plain.Close()
	for _, c := range []struct{ name, broker, word string }{
		{"Kafka address", fmt.Sprintf("kafka: {brokers: [%q]}", free), "connection refused"},
		{"Kafka TLS", fmt.Sprintf("kafka: {brokers: [%q], tls: {mode: required}}", plain.ListenAddrs()[0]), "sink.kafka.tls"},
		{"Kafka SASL", fmt.Sprintf("kafka: {brokers: [%q], sasl: {mechanism: plain, user: relay, password: wrong}}", users.ListenAddrs()[0]), "sink.kafka.sasl"},
		{"RocketMQ address", fmt.Sprintf("rocketmq: {name_servers: [%q]}", free), "connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, testkit.SharedDatabase(t, testkit.MySQL))
			l.broker = c.broker
			l.start()
			l.wait("status to say so", func() bool {
				st, err := l.admin().Status(t.Context())
				testkit.Must(t, err)
				return st.State == "degraded" && len(st.Problems) == 1 && strings.HasPrefix(st.Problems[0], "broker not reached yet: ") &&
					strings.Contains(st.Problems[0], c.word)
			})
			if n := l.logs.FilterMessageSnippet("broker not reached yet").Len(); n != 1 {
				t.Errorf("the log says so %d times", n)
			}
			if n := l.logs.FilterMessageSnippet("client:").Len(); n > 0 {
				t.Errorf("the client library logs %d lines", n)
			}
			l.commit("a")
			l.wait("the row to be read", func() bool {
				st, err := l.admin().Status(t.Context())
				testkit.Must(t, err)
				return st.Positions.Offered.Compare(st.Positions.Server) >= 0
			})
			l.stop()
			if n := l.number("SELECT COUNT(*) FROM t_local_message WHERE status = 0 AND retry_count = 0 AND fail_reason IS NULL"); n != 1 {
				t.Error("the row lost an attempt")
			}
		})
	}
}

// The broker that comes later is found without a row.
func TestBrokerReachedLater(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedDatabase(t, testkit.MySQL))
	l.kafka.Close()
	address := testkit.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	number, err := strconv.Atoi(port)
	testkit.Must(t, err)
	l.broker = fmt.Sprintf("kafka: {brokers: [%q]}", address)
	l.start()
	l.wait("a word on it", func() bool { return l.logs.FilterMessageSnippet("broker not reached yet").Len() == 1 })
	l.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"), kfake.Ports(number))
	testkit.Must(t, err)
	l.wait("status without it", func() bool {
		st, err := l.admin().Status(t.Context())
		testkit.Must(t, err)
		return len(st.Problems) == 0
	})
	if n := l.logs.FilterMessageSnippet("the broker answers").Len(); n != 1 {
		t.Errorf("the log says %d times that the broker answers", n)
	}
	l.commit("a")
	l.account("a")
}
