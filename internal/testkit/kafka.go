package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/test/servers"
)

// KafkaOptions says how to start a Kafka broker. The zero value is right for most tests.
type KafkaOptions struct {
	// Config adds to server.properties or overrides it, e.g. message.max.bytes. Topics are not created by use unless
	// auto.create.topics.enable is set here.
	Config map[string]string
	// TLS opens the secure listener with this certificate.
	TLS *Certificates
	// User and Password open the secure listener with SASL PLAIN for this account. With TLS both apply.
	User, Password string
	// Keys is the path of a JSON Web Key Set: the secure listener takes OAUTHBEARER tokens that one of its keys has signed for the
	// audience "kafka". With TLS both apply.
	Keys string
	// JVM replaces the default -Xmx512m -XX:TieredStopAtLevel=1. The second makes a start cost half the CPU time and a
	// broker at full load slower, so a benchmark sets -Xmx512m alone.
	JVM []string
}

// Kafka is a private single-node Kafka broker (KRaft). Kill, Stop, Start, Pause and Resume keep data and ports.
type Kafka struct {
	*Server
	runs, jars string
	dir        *runDir
	ports      *ports
}

// The broker's ports, as offsets from the first.
const (
	kafkaPlain = iota
	kafkaController
	kafkaSecure
)

// NewKafka is StartKafka for a test: it fails the test on error and closes the broker at its end. With SKIP_BROKERS=1 in
// the environment it skips the test.
func NewKafka(t T, opts KafkaOptions) *Kafka {
	t.Helper()
	return newBroker(t, func(ctx context.Context) (*Kafka, error) { return StartKafka(ctx, opts) })
}

// SharedKafka returns the broker that all tests of the binary share; they keep apart by topic. SKIP_BROKERS=1 skips.
func SharedKafka(t T) *Kafka {
	t.Helper()
	skipBrokers(t)
	return sharedServer(t, "kafka", func(ctx context.Context) (*Kafka, error) { return StartKafka(ctx, KafkaOptions{}) })
}

// skipBrokers skips the test where the caller of the tests asked for it.
func skipBrokers(t T) {
	t.Helper()
	if os.Getenv("SKIP_BROKERS") == "1" {
		t.Skipf("SKIP_BROKERS=1")
	}
}

func newBroker[B anyServer](t T, start func(context.Context) (B, error)) B {
	t.Helper()
	skipBrokers(t)
	b, err := start(context.Background())
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		showCrash(t, b)
		if err := b.Close(); err != nil {
			t.Logf("close broker: %v", err)
		}
	})
	return b
}

// StartKafka starts a new, empty broker and returns when it answers. It is installed first if it is missing, which may
// take minutes. The caller closes it.
func StartKafka(ctx context.Context, opts KafkaOptions) (_ *Kafka, err error) {
	k, err := layKafka(ctx)
	if err != nil {
		return nil, err
	}
	if err := k.configure(ctx, opts); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if err := k.Start(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// layKafka reserves a directory and ports.
func layKafka(ctx context.Context) (_ *Kafka, err error) {
	cache, err := servers.Cache()
	if err != nil {
		return nil, err
	}
	if err := install(ctx, "kafka"); err != nil {
		return nil, err
	}
	k := &Kafka{runs: filepath.Join(cache, "run"), jars: filepath.Join(cache, "kafka", "jars")}
	if k.dir, err = newRunDir(k.runs, "kafka"); err != nil {
		return nil, err
	}
	if k.ports, err = reservePorts(kafkaPlain, kafkaController, kafkaSecure); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// configure writes the broker's files.
func (k *Kafka) configure(ctx context.Context, opts KafkaOptions) error {
	properties := filepath.Join(k.dir.path, "server.properties")
	if err := k.writeProperties(properties, opts); err != nil {
		return err
	}
	if err := k.format(ctx, properties); err != nil {
		return err
	}
	jvm := opts.JVM
	if len(jvm) == 0 {
		jvm = []string{"-Xmx512m", quickJIT}
	}
	if opts.Keys != "" {
		jvm = append(slices.Clone(jvm), "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://"+opts.Keys)
	}
	k.Server = &Server{
		name:    "kafka",
		log:     filepath.Join(k.dir.path, "server.log"),
		command: func() *exec.Cmd { return java(jvm, k.jars, "kafka.Kafka", properties) },
		ready:   k.ping,
	}
	return nil
}

// quickJIT stops at the first compiler, which is what a server that runs for seconds needs.
const quickJIT = "-XX:TieredStopAtLevel=1"

// java returns the command that runs a main class with all jars of a directory.
func java(jvm []string, jars, main string, args ...string) *exec.Cmd {
	line := append(slices.Clone(jvm), "-XX:-UsePerfData", "-cp", filepath.Join(jars, "*"), main)
	return exec.Command("java", append(line, args...)...)
}

// format puts the metadata of a new cluster into the log directory. It is copied from a template, because making it
// costs another start of a virtual machine and it holds nothing that a second broker could not share.
func (k *Kafka) format(ctx context.Context, properties string) error {
	release, err := filepath.Glob(filepath.Join(k.jars, "kafka_*.jar"))
	if err != nil || len(release) == 0 {
		return fmt.Errorf("start kafka: no kafka jar in %s", k.jars)
	}
	name := strings.TrimSuffix(filepath.Base(release[0]), ".jar")
	from, err := template(k.runs, "template-"+name, func(dir string) error {
		cmd := java(nil, k.jars, "kafka.tools.StorageTool", "format", "-t", "canaloutboxtestclust0w", "-c", properties)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("format kafka's log directory: %w:\n%s", err, out)
		}
		return os.Rename(k.dataDir(), filepath.Join(dir, "data"))
	})
	if err != nil {
		return err
	}
	return copyTree(ctx, from, k.dataDir())
}

func (k *Kafka) writeProperties(path string, opts KafkaOptions) error {
	plain, controller := k.Addr(), loopback(k.ports.base+kafkaController)
	config := map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@" + controller,
		"listeners":                      "PLAINTEXT://" + plain + ",CONTROLLER://" + controller,
		"advertised.listeners":           "PLAINTEXT://" + plain,
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names":      "CONTROLLER",
		"log.dirs":                       k.dataDir(),
		"auto.create.topics.enable":      "false",
		// The registration of a killed broker must expire before the next start is accepted.
		"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500",
		"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1",
		"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
		"transaction.state.log.num.partitions":             "1",
		"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
		"group.initial.rebalance.delay.ms": "0",
	}
	if err := k.secure(config, opts); err != nil {
		return err
	}
	maps.Copy(config, opts.Config)
	return writeConf(path, config)
}

// secure adds the listener with TLS or SASL or both, if asked for.
func (k *Kafka) secure(config map[string]string, opts KafkaOptions) error {
	if opts.TLS == nil && opts.User == "" && opts.Keys == "" {
		return nil
	}
	protocol := "PLAINTEXT"
	if opts.TLS != nil {
		protocol = "SSL"
		keystore := filepath.Join(k.dir.path, "keystore.pem")
		if err := os.WriteFile(keystore, slices.Concat(opts.TLS.Key, opts.TLS.Cert), 0o600); err != nil {
			return fmt.Errorf("write kafka's certificate: %w", err)
		}
		config["ssl.keystore.type"], config["ssl.keystore.location"] = "PEM", keystore
	}
	if opts.User != "" {
		protocol = "SASL_" + protocol
		config["sasl.enabled.mechanisms"] = "PLAIN"
		config["listener.name.secure.plain.sasl.jaas.config"] = fmt.Sprintf(
			"org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q;", opts.User, opts.Password)
	}
	if opts.Keys != "" {
		const oauthbearer = "org.apache.kafka.common.security.oauthbearer."
		protocol = "SASL_" + protocol
		config["sasl.enabled.mechanisms"] = "OAUTHBEARER"
		config["listener.name.secure.oauthbearer.sasl.jaas.config"] = oauthbearer + "OAuthBearerLoginModule required;"
		config["listener.name.secure.oauthbearer.sasl.server.callback.handler.class"] = oauthbearer + "OAuthBearerValidatorCallbackHandler"
		config["sasl.oauthbearer.jwks.endpoint.url"], config["sasl.oauthbearer.expected.audience"] = "file://"+opts.Keys, "kafka"
	}
	config["listeners"] += ",SECURE://" + k.SecureAddr()
	config["advertised.listeners"] += ",SECURE://" + k.SecureAddr()
	config["listener.security.protocol.map"] += ",SECURE:" + protocol
	return nil
}

// Addr returns host:port of the plain listener.
func (k *Kafka) Addr() string { return loopback(k.ports.base + kafkaPlain) }

// SecureAddr returns host:port of the listener with TLS or SASL; it is open only when the options asked for either.
func (k *Kafka) SecureAddr() string { return loopback(k.ports.base + kafkaSecure) }

func (k *Kafka) dataDir() string { return filepath.Join(k.dir.path, "data") }

// Close kills the broker and removes its directory. Closing twice is harmless.
func (k *Kafka) Close() error { return closeServer(k.dir, k.ports, k.Server) }
