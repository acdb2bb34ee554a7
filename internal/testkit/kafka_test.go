package testkit

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

func produceKafka(t *testing.T, addr, topic string, n int, opts ...kgo.Opt) {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.MetadataMinAge(metadataAge))...)
	Must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for i := range n {
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: fmt.Append(nil, "value ", i)}
		Must(t, client.ProduceSync(ctx, r).FirstErr())
	}
}

func TestKafkaLife(t *testing.T) {
	startsServers(t)
	begin := time.Now()
	k := NewKafka(t, KafkaOptions{})
	t.Logf("first start %v", time.Since(begin))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	Must(t, k.CreateTopic(ctx, "orders", 3, map[string]string{"max.message.bytes": "2000000"}))
	produceKafka(t, k.Addr(), "orders", 20)
	addr := k.Addr()
	Must(t, k.Kill())
	begin = time.Now()
	Must(t, k.Start(ctx))
	t.Logf("start after Kill %v", time.Since(begin))
	if k.Addr() != addr {
		t.Fatalf("restarted on %s, was on %s", k.Addr(), addr)
	}
	produceKafka(t, addr, "orders", 5)
	records, err := ReadKafkaTopic(ctx, addr, "orders")
	Must(t, err)
	if len(records) != 25 {
		t.Fatalf("read %d records, wrote 25", len(records))
	}
	begin = time.Now()
	Must(t, k.Stop())
	t.Logf("stop %v", time.Since(begin))
	begin = time.Now()
	Must(t, k.Start(ctx))
	t.Logf("start after Stop %v", time.Since(begin))
	pid := k.PID()
	Must(t, k.Close())
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if _, err := os.Stat(k.dir.path); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", k.dir.path, err)
	}
}

func TestKafkaSecureListener(t *testing.T) {
	startsServers(t)
	certificates, err := NewCertificates()
	Must(t, err)
	k := NewKafka(t, KafkaOptions{TLS: certificates, User: "alice", Password: "se cret"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	Must(t, k.CreateTopic(ctx, "orders", 1, nil))
	produceKafka(t, k.SecureAddr(), "orders", 2,
		kgo.DialTLSConfig(&tls.Config{RootCAs: certificates.Pool()}),
		kgo.SASL(plain.Auth{User: "alice", Pass: "se cret"}.AsMechanism()))
	records, err := ReadKafkaTopic(ctx, k.Addr(), "orders")
	Must(t, err)
	if len(records) != 2 {
		t.Fatalf("read %d records, wrote 2", len(records))
	}
}

func TestKafkaTopicIsNotCreatedByUse(t *testing.T) {
	startsServers(t)
	k := SharedKafka(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if records, err := ReadKafkaTopic(ctx, k.Addr(), "nowhere"); err == nil {
		t.Fatalf("read %d records of a topic that does not exist", len(records))
	}
	Must(t, k.CreateTopic(ctx, "empty", 2, nil))
	records, err := ReadKafkaTopic(ctx, k.Addr(), "empty")
	Must(t, err)
	if len(records) != 0 {
		t.Fatalf("%d records in a new topic", len(records))
	}
}
