package kafka

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// secureFake starts a broker with TLS and one account for each mechanism.
func secureFake(t *testing.T) (f *fake, client *tls.Config) {
	t.Helper()
	certs, err := testkit.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certs.Cert, certs.Key)
	if err != nil {
		t.Fatal(err)
	}
	f = newFake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}), kfake.EnableSASL(), kfake.SeedTopics(4, "orders"),
		kfake.Superuser("PLAIN", "plain", "secret"), kfake.Superuser("SCRAM-SHA-256", "scram256", "secret"), kfake.Superuser("SCRAM-SHA-512", "scram512", "secret"))
	return f, &tls.Config{RootCAs: certs.Pool()}
}

func TestTLSAndSASL(t *testing.T) {
	f, client := secureFake(t)
	for _, c := range []SASL{{"PLAIN", "plain", "secret"}, {"SCRAM-SHA-256", "scram256", "secret"}, {"SCRAM-SHA-512", "scram512", "secret"}} {
		t.Run(c.Mechanism, func(t *testing.T) {
			s := newSink(t, f.addr(), func(cfg *Config) { cfg.TLS, cfg.SASL = client, c })
			wantClass(t, outbox.ClassNone, publish(t, s, messages("orders", 5)...)...)
			if err := s.Probe(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A fault that an operator must fix has the class service, in the send and in the probe's text, and the password stays secret.
func TestE2_AccessFaultsAreService(t *testing.T) {
	f, client := secureFake(t)
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"no SASL", func(c *Config) { c.TLS = client }},
		{"no TLS", func(c *Config) { c.SASL = SASL{"PLAIN", "plain", "secret"} }},
		{"unknown authority", func(c *Config) { c.TLS, c.SASL = &tls.Config{}, SASL{"PLAIN", "plain", "secret"} }},
	} {
		t.Run(c.name, func(t *testing.T) { wantService(t, f.addr(), c.change) })
	}
}

func wantService(t *testing.T, addr string, change func(*Config)) {
	t.Helper()
	s := newSink(t, addr, change, func(c *Config) { c.DeliveryTimeout = time.Second })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := s.Probe(ctx)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("probe: %v", err)
	}
	r := publish(t, s, messages("orders", 1)...)[0]
	if r.Class != outbox.ClassService || strings.Contains(r.Reason, "hunter2") {
		t.Errorf("class %s (%s)", r.Class, r.Reason)
	}
}

// The fake broker closes the connection on a wrong password; a real one reports the error.
func TestE2_AccessFaultsOnKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	certs, err := testkit.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	k := testkit.NewKafka(t, testkit.KafkaOptions{TLS: certs, User: "relay", Password: "secret"})
	makeTopic(t, k.Addr(), "orders", nil)
	client := &tls.Config{RootCAs: certs.Pool()}
	s := newSink(t, k.SecureAddr(), func(c *Config) { c.TLS, c.SASL = client, SASL{"PLAIN", "relay", "secret"} })
	wantClass(t, outbox.ClassNone, publish(t, s, messages("orders", 5)...)...)
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"wrong password", func(c *Config) { c.TLS, c.SASL = client, SASL{"PLAIN", "relay", "hunter2"} }},
		{"mechanism off", func(c *Config) { c.TLS, c.SASL = client, SASL{"SCRAM-SHA-512", "relay", "secret"} }},
		{"no SASL", func(c *Config) { c.TLS = client }},
		{"unknown authority", func(c *Config) { c.TLS, c.SASL = &tls.Config{}, SASL{"PLAIN", "relay", "secret"} }},
	} {
		t.Run(c.name, func(t *testing.T) { wantService(t, k.SecureAddr(), c.change) })
	}
}

func TestTopicsTellOfMissingRights(t *testing.T) {
	f := newFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(4, "mine", "readable", "hidden"),
		kfake.Superuser("PLAIN", "admin", "secret"),
		kfake.User("PLAIN", "relay", "secret",
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "mine", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationAll, Allow: true},
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "readable", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}))
	s := newSink(t, f.addr(), func(c *Config) { c.SASL = SASL{"PLAIN", "relay", "secret"} })
	faults, err := s.Topics(t.Context(), []string{"mine", "readable", "hidden"})
	if err != nil {
		t.Fatal(err)
	}
	if faults["mine"] != nil || faults["readable"] == nil || faults["hidden"] == nil {
		t.Errorf("faults: %v", faults)
	}
	wantClass(t, outbox.ClassNone, publish(t, s, messages("mine", 1)...)...)
	wantClass(t, outbox.ClassTopic, publish(t, s, messages("readable", 1)...)...)
	wantClass(t, outbox.ClassTopic, publish(t, s, messages("hidden", 1)...)...)
}

func TestConfigFaultsAreReportedAtOnce(t *testing.T) {
	_, err := New(Config{
		MaxMessageBytes: 5, MaxInFlight: -1, DeliveryTimeout: time.Millisecond, Compression: "rar", SASL: SASL{Mechanism: "GSSAPI", User: "u", Password: "hunter2"},
	}, zap.NewNop(), nil)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"brokers", "max_message_bytes", "max_in_flight", "delivery_timeout", "compression", "sasl.mechanism"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not named in: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the password: %v", err)
	}
}

func TestCompressionCodecs(t *testing.T) {
	f := newFake(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := createTopic(t, f.addr(), nil)
		s := newSink(t, f.addr(), func(c *Config) { c.Compression = codec })
		all := messages(topic, 200)
		wantClass(t, outbox.ClassNone, publish(t, s, all...)...)
		if n := copies(t, f.addr(), topic); len(n) != len(all) {
			t.Errorf("%s: %d of %d messages came back", codec, len(n), len(all))
		}
	}
}

// A closed sink frees its names in the registry for the next one.
func TestMetricsAreRegisteredOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := Config{Brokers: []string{"127.0.0.1:1"}}
	first, err := New(cfg, zap.NewNop(), reg)
	if err != nil {
		t.Fatal(err)
	}
	if families, err := reg.Gather(); err != nil || len(families) != 4 {
		t.Errorf("%d series exist from the start, %v", len(families), err)
	}
	if _, err := New(cfg, zap.NewNop(), reg); err == nil {
		t.Error("two sinks share one registry")
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	second, err := New(cfg, zap.NewNop(), reg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
