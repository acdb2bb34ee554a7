package testkit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// KafkaCluster is several private brokers of one cluster, each of them a controller as well. Internal topics and those of CreateKafkaTopic have a replica on
// each broker, and take writes while one is away.
type KafkaCluster []*Kafka

// NewKafkaCluster starts n empty brokers for a test, which closes them at its end. With SKIP_BROKERS=1 in the environment it skips the test.
func NewKafkaCluster(t T, n int) KafkaCluster {
	t.Helper()
	return newBroker(t, func(ctx context.Context) (KafkaCluster, error) { return StartKafkaCluster(ctx, n) })
}

// StartKafkaCluster is StartKafka for n brokers.
func StartKafkaCluster(ctx context.Context, n int) (_ KafkaCluster, err error) {
	c := KafkaCluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	var voters []string
	for id := 1; id <= n; id++ {
		k, err := layKafka(ctx)
		if err != nil {
			return nil, err
		}
		c = append(c, k)
		voters = append(voters, fmt.Sprintf("%d@%s", id, loopback(k.ports.base+kafkaController)))
	}
	replicas, least := fmt.Sprint(n), fmt.Sprint(max(n-1, 1))
	config := map[string]string{
		"controller.quorum.voters": strings.Join(voters, ","), "default.replication.factor": replicas, "min.insync.replicas": least,
		"offsets.topic.replication.factor": replicas, "transaction.state.log.replication.factor": replicas, "transaction.state.log.min.isr": least,
		"share.coordinator.state.topic.replication.factor": replicas, "share.coordinator.state.topic.min.isr": least,
	}
	for i, k := range c {
		config := maps.Clone(config)
		config["node.id"] = fmt.Sprint(i + 1)
		if err := k.configure(ctx, KafkaOptions{Config: config}); err != nil {
			return nil, err
		}
		if err := k.rename(i + 1); err != nil {
			return nil, err
		}
	}
	return c, c.start(ctx)
}

// start starts all brokers: none answers before most are there.
func (c KafkaCluster) start(ctx context.Context) error {
	errs := make([]error, len(c))
	var all sync.WaitGroup
	for i, k := range c {
		all.Go(func() { errs[i] = k.Start(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// rename gives the data directory the number of its node, and an id of its own.
func (k *Kafka) rename(node int) error {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	path := filepath.Join(k.dataDir(), "meta.properties")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configure kafka: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		switch name, _, _ := strings.Cut(line, "="); name {
		case "node.id":
			lines[i] = fmt.Sprintf("node.id=%d", node)
		case "directory.id":
			lines[i] = "directory.id=" + base64.RawURLEncoding.EncodeToString(id)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		return fmt.Errorf("configure kafka: %w", err)
	}
	return nil
}

// Addrs returns host:port of each broker's plain listener.
func (c KafkaCluster) Addrs() (all []string) {
	for _, k := range c {
		all = append(all, k.Addr())
	}
	return all
}

// Crash is how the first broker of those that crashed ended, and what it said.
func (c KafkaCluster) Crash() (crash string) {
	for _, k := range c {
		crash = cmp.Or(crash, k.Crash())
	}
	return crash
}

// Close kills the brokers and removes their directories.
func (c KafkaCluster) Close() error {
	var errs []error
	for _, k := range c {
		errs = append(errs, k.Close())
	}
	return errors.Join(errs...)
}
