package kafka

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// secureFake starts a broker with TLS and one account for each mechanism.
func secureFake(t *testing.T) (f *fakekafka.Cluster, client *tls.Config) {
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

// fixed returns a function that returns a value.
func fixed[T any](value T) func() T { return func() T { return value } }

func TestTLSAndSASL(t *testing.T) {
	f, client := secureFake(t)
	for name, user := range map[string]string{"plain": "plain", "scram-sha-256": "scram256", "scram-sha-512": "scram512"} {
		login := mechanisms[name](user, fixed("secret"))
		t.Run(name, func(t *testing.T) {
			s := newSink(t, f.Addr(), func(cfg *config) { cfg.tls, cfg.sasl = client.Clone, login })
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
		change func(*config)
	}{
		{"no SASL", func(c *config) { c.tls = client.Clone }},
		{"no TLS", func(c *config) { c.sasl = mechanisms["plain"]("plain", fixed("secret")) }},
		{"unknown authority", func(c *config) { c.tls, c.sasl = (&tls.Config{}).Clone, mechanisms["plain"]("plain", fixed("secret")) }},
	} {
		t.Run(c.name, func(t *testing.T) { wantService(t, f.Addr(), c.change) })
	}
}

func wantService(t *testing.T, addr string, change func(*config)) {
	t.Helper()
	s := newSink(t, addr, change, func(c *config) { c.times.delivery = time.Second })
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
	s := newSink(t, k.SecureAddr(), func(c *config) { c.tls, c.sasl = client.Clone, mechanisms["plain"]("relay", fixed("secret")) })
	wantClass(t, outbox.ClassNone, publish(t, s, messages("orders", 5)...)...)
	for _, c := range []struct {
		name   string
		change func(*config)
	}{
		{"wrong password", func(c *config) { c.tls, c.sasl = client.Clone, mechanisms["plain"]("relay", fixed("hunter2")) }},
		{"mechanism off", func(c *config) { c.tls, c.sasl = client.Clone, mechanisms["scram-sha-512"]("relay", fixed("secret")) }},
		{"no SASL", func(c *config) { c.tls = client.Clone }},
		{"unknown authority", func(c *config) { c.tls, c.sasl = (&tls.Config{}).Clone, mechanisms["plain"]("relay", fixed("secret")) }},
	} {
		t.Run(c.name, func(t *testing.T) { wantService(t, k.SecureAddr(), c.change) })
	}
}

func TestTopicsReportMissingRights(t *testing.T) {
	f := newFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(4, "mine", "readable", "writable", "hidden"),
		kfake.Superuser("PLAIN", "admin", "secret"),
		kfake.User("PLAIN", "relay", "secret",
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "mine", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationAll, Allow: true},
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "writable", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite, Allow: true},
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "readable", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}))
	s := newSink(t, f.Addr(), func(c *config) { c.sasl = mechanisms["plain"]("relay", fixed("secret")) })
	faults, err := s.Topics(t.Context(), []string{"mine", "readable", "hidden"})
	if err != nil {
		t.Fatal(err)
	}
	if faults["mine"] != nil || faults["readable"] == nil || faults["hidden"] == nil {
		t.Errorf("faults: %v", faults)
	}
	section := &Section{Brokers: []string{"b:9092"}, SASL: Authentication{User: "relay"}}
	var unreadable []string
	for _, f := range section.Check(t.Context(), s, sink.Newest{Topics: []string{"mine", "readable", "writable"}, ReadBack: true}) {
		if strings.Contains(f.What, "may not read") {
			unreadable = append(unreadable, f.Subject+": "+f.Fix)
		}
	}
	want := "topic writable: kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:relay --operation Read --topic writable"
	if len(unreadable) != 1 || unreadable[0] != want {
		t.Errorf("not readable: %q", unreadable)
	}
	wantClass(t, outbox.ClassNone, publish(t, s, messages("mine", 1)...)...)
	wantClass(t, outbox.ClassTopic, publish(t, s, messages("readable", 1)...)...)
	wantClass(t, outbox.ClassTopic, publish(t, s, messages("hidden", 1)...)...)
}

func TestSectionNamesEveryFault(t *testing.T) {
	var faults []string
	report := setting.NewReport(func(path, value, reason string) { faults = append(faults, path+"="+value+" "+reason) })
	section := &Section{MaxMessageBytes: 5, Compression: "rar", SASL: Authentication{Mechanism: "gssapi", User: "u", Password: setting.NewSecret("hunter2")}}
	section.Validate(report)
	text := strings.Join(faults, "\n")
	for _, part := range []string{"brokers", "max_message_bytes", "compression=rar", "sasl.mechanism=gssapi"} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not named in: %s", part, text)
		}
	}
	if strings.Contains(text, "hunter2") {
		t.Errorf("the password is shown: %s", text)
	}
}

func TestCompressionCodecs(t *testing.T) {
	f := newFake(t)
	for name, codec := range codecs {
		topic := createTopic(t, f.Addr(), nil)
		s := newSink(t, f.Addr(), func(c *config) { c.codec = codec })
		all := messages(topic, 200)
		wantClass(t, outbox.ClassNone, publish(t, s, all...)...)
		if n := copies(t, f.Addr(), topic); len(n) != len(all) {
			t.Errorf("%s: %d of %d messages came back", name, len(n), len(all))
		}
	}
}
