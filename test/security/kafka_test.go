package security

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// outboxTable creates a table in the shared database. The relay reads it as root.
func outboxTable(t *testing.T) *secured {
	t.Helper()
	db := testkit.SharedMySQL(t)
	schema := db.CreateSchema(t)
	return &secured{db: db, table: relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")}
}

// to returns a configuration with that sink.
func (s *secured) to(sink string) string {
	return fmt.Sprintf("source: {address: %q, user: root}\ntables: [{name: %s, preset: t_local_message}]\nsink: {%s}",
		s.db.Addr(), s.table.FullName(), sink)
}

// insert writes a row for the topic orders.
func (s *secured) insert(t *testing.T, key string) {
	t.Helper()
	row := relay.Row{BizType: "order", Key: key, Topic: "orders", Body: []byte("body of " + key)}
	testkit.Must(t, s.table.Insert(t.Context(), s.table.DB, row))
}

func (s *secured) awaitSent(t *testing.T, key string) {
	t.Helper()
	testkit.WaitFor(t, patience, "the row "+key+" to be SENT", func() bool {
		return s.table.Count(t, "status = 2 AND biz_key = '"+key+"'") == 1
	})
}

// waits checks that the row waiting has lost no attempt.
func (s *secured) waits(t *testing.T) {
	t.Helper()
	if n := s.table.Count(t, "status IN (0, 1) AND retry_count = 0 AND biz_key = 'waiting'"); n != 1 {
		t.Error("the row was not left as it is")
	}
}

// The real broker, with TLS and a password: messages arrive, and neither they nor the password are readable on the network.
func TestKafkaTLSAndPlain(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	certs, own := certificates(t, testkit.NewCertificates)
	_, foreign := certificates(t, testkit.NewCertificates)
	k := testkit.NewKafka(t, testkit.KafkaOptions{TLS: certs, User: "relay", Password: password})
	testkit.Must(t, k.CreateTopic(t.Context(), "orders", 1, nil))
	s := outboxTable(t)
	sink := func(addr, mode, ca, password string) string {
		return s.to(fmt.Sprintf("kafka: {brokers: [%q], tls: {mode: %s, ca: %q}, sasl: {mechanism: plain, user: relay, password: %q}}",
			addr, mode, ca, password))
	}
	wire, elsewhere := newTap(t, "127.0.0.1", k.SecureAddr()), newTap(t, "127.0.0.2", k.SecureAddr())
	for _, mode := range []string{"verify-ca", "verify-identity"} {
		r := newChild(t, sink(wire.Addr(), mode, own, password))
		r.Start(t)
		s.insert(t, mode)
		s.awaitSent(t, mode)
		r.Kill()
	}
	if wire.saw(password) || wire.saw("body of") || wire.saw("orders") {
		t.Error("the connection could be read on the network")
	}
	// Doctor and the log report the fault, and the row waits without losing an attempt.
	s.insert(t, "waiting")
	for _, c := range []struct{ name, addr, mode, ca, password, says string }{
		{"wrong password", k.SecureAddr(), "verify-identity", own, "a-wrong-one-entirely", "uthentication"},
		{"foreign authority", k.SecureAddr(), "verify-ca", foreign, password, "unknown authority"},
		{"another host name", elsewhere.Addr(), "verify-identity", own, password, "127.0.0.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newChild(t, sink(c.addr, c.mode, c.ca, c.password))
			printed := r.doctorSays(c.says)
			r.Start(t)
			r.says(c.says)
			s.waits(t)
			if strings.Contains(printed+r.printed(), c.password) {
				t.Error("doctor or the log shows the password")
			}
		})
	}
	r := newChild(t, sink(k.SecureAddr(), "verify-identity", own, password))
	r.Start(t)
	s.awaitSent(t, "waiting")
	records, err := testkit.ReadKafkaTopic(t.Context(), k.Addr(), "orders")
	testkit.Must(t, err)
	bodies := map[string]bool{}
	for _, record := range records {
		bodies[string(record.Value)] = true
	}
	for _, key := range []string{"verify-ca", "verify-identity", "waiting"} {
		if !bodies["body of "+key] {
			t.Errorf("%s is not in the broker", key)
		}
	}
}

// SCRAM in both strengths, over TLS, through the whole relay.
func TestKafkaScram(t *testing.T) {
	t.Parallel()
	certs, ca := certificates(t, testkit.NewCertificates)
	pair, err := tls.X509KeyPair(certs.Cert, certs.Key)
	testkit.Must(t, err)
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}),
		kfake.Superuser("SCRAM-SHA-256", "user256", password), kfake.Superuser("SCRAM-SHA-512", "user512", password))
	testkit.Must(t, err)
	t.Cleanup(fake.Close)
	s := outboxTable(t)
	for mechanism, user := range map[string]string{"scram-sha-256": "user256", "scram-sha-512": "user512"} {
		t.Run(mechanism, func(t *testing.T) {
			r := newChild(t, s.to(fmt.Sprintf("kafka: {brokers: [%q], tls: {mode: verify-identity, ca: %q}, sasl: {mechanism: %s, user: %s, password: %q}}",
				fake.ListenAddrs()[0], ca, mechanism, user, password)))
			r.Start(t)
			s.insert(t, mechanism)
			s.awaitSent(t, mechanism)
			r.Kill()
			r.configure(s.to(fmt.Sprintf("kafka: {brokers: [%q], tls: {mode: required}, sasl: {mechanism: %s, user: %s, password: wrong}}",
				fake.ListenAddrs()[0], mechanism, user)))
			r.doctorSays("sink")
		})
	}
}
