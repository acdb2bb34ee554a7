package security

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// The SCRAM password at a real Kafka changes under load. The broker wants each connection to log in again after some seconds, so the relay
// meets it soon.
func TestThePasswordOfKafkaRotates(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	const first, second = "the-first-password", "the-second-password"
	k := testkit.NewKafka(t, testkit.KafkaOptions{User: "unused", Password: "unused-password", Config: map[string]string{
		"sasl.enabled.mechanisms": "SCRAM-SHA-256", "connections.max.reauth.ms": "3000",
		"listener.name.secure.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
	}})
	testkit.Must(t, k.CreateTopic(t.Context(), "orders", 1, nil))
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()))
	testkit.Must(t, err)
	t.Cleanup(client.Close)
	account := func(password string) {
		t.Helper()
		answer, err := kadm.NewClient(client).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "relay", Mechanism: kadm.ScramSha256, Iterations: 8192, Password: password}})
		testkit.Must(t, errors.Join(err, answer.Error()))
	}
	account(first)
	r := newRotation(t, testkit.SharedMySQL(t), "unused-password")
	r.write(first)
	r.starts("user: root", fmt.Sprintf("kafka: {brokers: [%q], sasl: {mechanism: scram-sha-256, user: relay, password_file: %q}}", k.SecureAddr(), r.secret))
	r.flows("at the start")
	account(second)
	r.awaitProblem("sink.kafka.sasl.password_file ("+r.secret+") is refused by "+k.SecureAddr()+" since ", "read again at each try")
	r.write(second)
	r.flows("with the second password")
	r.balance(func() ([]relay.Record, error) { return relay.ReadKafka(t.Context(), k.Addr(), "orders") }, first, second)
}

// updateUser is the request that changes an account of a RocketMQ broker (RequestCode AUTH_UPDATE_USER of 5.3).
const updateUser = 3002

// The secret key at a real RocketMQ changes under load. Every request is signed, so the relay meets it at once.
func TestTheSecretKeyOfRocketMQRotates(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	const first, second, admin = "the-first-secret-key", "the-second-secret-key", "of-the-administrator"
	q := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{"orders": 1}, Config: map[string]string{
		"authenticationEnabled":                "true",
		"authenticationProvider":               "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
		"authenticationMetadataProvider":       "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
		"initAuthenticationUser":               fmt.Sprintf(`{"username":"admin","password":%q}`, admin),
		"innerClientAuthenticationCredentials": fmt.Sprintf(`{"accessKey":"admin","secretKey":%q}`, admin),
		"authenticationWhitelist":              readable,
	}})
	ask := remoting.Client{Names: []string{q.NameServer()}, NamesLimit: time.Minute, AccessKey: "admin", SecretKey: func() string { return admin }}
	account := func(code int, password string) {
		t.Helper()
		body, err := json.Marshal(map[string]string{"username": "relay", "password": password, "userType": "Normal"})
		testkit.Must(t, err)
		_, _, err = ask.Ask(t.Context(), time.Minute, q.BrokerAddr(), code, map[string]string{"username": "relay"}, body)
		testkit.Must(t, err)
	}
	account(updateUser-1, first) // creates it
	r := newRotation(t, testkit.SharedMySQL(t), "unused-password")
	r.write(first)
	r.starts("user: root", fmt.Sprintf("rocketmq: {name_servers: [%q], access_key: relay, secret_key_file: %q}", q.NameServer(), r.secret))
	r.flows("at the start")
	account(updateUser, second)
	r.awaitProblem("sink.rocketmq.secret_key_file ("+r.secret+") is refused by "+q.BrokerAddr()+" since ", "read again at each try")
	r.write(second)
	r.flows("with the second key")
	r.balance(func() ([]relay.Record, error) { return relay.ReadRocketMQ(t.Context(), q.NameServer(), "orders") }, first, second)
}
