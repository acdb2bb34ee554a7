package security

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// readable are the request codes that the broker answers without a signature, so that the test kit can read its content: create
// topic, pull, maximum and minimum offset.
const readable = "17,11,30,31"

// The real broker with authentication: signed messages are accepted; a wrong or missing key is refused, which the log reports,
// and which costs the row no attempt and shows no secret.
func TestRocketMQCredentials(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	q := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{"orders": 1}, Config: map[string]string{
		"authenticationEnabled":                "true",
		"authenticationProvider":               "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
		"authenticationMetadataProvider":       "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
		"initAuthenticationUser":               fmt.Sprintf(`{"username":"relay","password":%q}`, password),
		"innerClientAuthenticationCredentials": fmt.Sprintf(`{"accessKey":"relay","secretKey":%q}`, password),
		"authenticationWhitelist":              readable,
	}})
	s := outboxTable(t)
	sink := func(keys string) string {
		return s.to(fmt.Sprintf("rocketmq: {name_servers: [%q]%s}", q.NameServer(), keys))
	}
	right := sink(fmt.Sprintf(", access_key: relay, secret_key: %q", password))

	r := newChild(t, right)
	if printed, code := r.command("doctor"); !strings.Contains(printed, "the broker answers") {
		t.Errorf("doctor: code %d\n%s", code, printed)
	}
	r.Start(t)
	s.insert(t, "signed")
	s.awaitSent(t, "signed")
	r.Kill()

	const wrong = "a-wrong-one-entirely"
	s.insert(t, "waiting")
	for name, keys := range map[string]string{"wrong key": ", access_key: relay, secret_key: " + wrong, "no key": ""} {
		t.Run(name, func(t *testing.T) {
			r := newChild(t, sink(keys))
			r.Start(t)
			r.says("the broker does not take messages", "CODE: 16") // NO_PERMISSION
			s.waits(t)
			if printed, _ := r.command("doctor"); strings.Contains(printed+r.printed(), wrong) {
				t.Error("the secret key is shown")
			}
		})
	}
	newChild(t, right).Start(t)
	s.awaitSent(t, "waiting")
	records, err := testkit.ReadRocketMQTopic(t.Context(), q.NameServer(), "orders")
	testkit.Must(t, err)
	if len(records) != 2 {
		t.Errorf("%d messages are in the broker, 2 were committed", len(records))
	}
}

// B15: the client has no TLS, so a configuration that requires it is refused and does not continue unencrypted.
func TestB15_RocketMQWithTLSIsRefused(t *testing.T) {
	r := newChild(t, outboxTable(t).to("rocketmq: {name_servers: [127.0.0.1:1], tls: {mode: required}}"))
	r.fails("tls", "the RocketMQ client has no TLS")
}
