package testkit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

// RocketMQOptions says how to start a name server and a broker.
type RocketMQOptions struct {
	// Topics are there from the start, name to number of queues. CreateTopic shortly after a start may have to wait up to
	// ten seconds for the broker's next registration with the name server.
	Topics map[string]int
	// Config adds to broker.conf or overrides it, e.g. flushDiskType. Topics are not created by use unless
	// autoCreateTopicEnable is set here.
	Config map[string]string
	// ReplicaOf makes the broker a replica of another one, whose brokerIP2 must be 127.0.0.1. It has no name server of its own.
	ReplicaOf *RocketMQ
	// JVM replaces the broker's default -Xms512m -Xmx512m -XX:TieredStopAtLevel=1; a benchmark leaves the last one out, see
	// KafkaOptions.
	JVM []string
}

// RocketMQ is a private name server with one broker. Broker and Names can be killed, stopped, paused and started again
// each on its own; data and ports stay.
type RocketMQ struct {
	Broker, Names *Server
	dir           *runDir
	names, broker *ports
}

const (
	brokerName = "broker-a"
	readWrite  = remoting.MayRead | remoting.MayWrite
	singleTag  = "SINGLE_TAG"
)

// NewRocketMQ is StartRocketMQ for a test: it fails the test on error and closes both servers at its end. With
// SKIP_BROKERS=1 in the environment it skips the test.
func NewRocketMQ(t T, opts RocketMQOptions) *RocketMQ {
	t.Helper()
	return newBroker(t, func(ctx context.Context) (*RocketMQ, error) { return StartRocketMQ(ctx, opts) })
}

// SharedRocketMQ returns the servers that all tests of the binary share; they keep apart by topic. SKIP_BROKERS=1 skips.
func SharedRocketMQ(t T) *RocketMQ {
	t.Helper()
	skipBrokers(t)
	return sharedServer(t, "rocketmq", func(ctx context.Context) (*RocketMQ, error) {
		return StartRocketMQ(ctx, RocketMQOptions{})
	})
}

// StartRocketMQ starts a new, empty pair and returns when the broker is registered with the name server. It is installed
// first if it is missing, which may take minutes. The caller closes it.
func StartRocketMQ(ctx context.Context, opts RocketMQOptions) (_ *RocketMQ, err error) {
	cache, err := servers.Cache()
	if err != nil {
		return nil, err
	}
	if err := install(ctx, "rocketmq"); err != nil {
		return nil, err
	}
	r := &RocketMQ{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.dir, err = newRunDir(filepath.Join(cache, "run"), "rocketmq"); err != nil {
		return nil, err
	}
	if r.names, err = reservePorts(0); err != nil {
		return nil, err
	}
	if r.broker, err = reservePorts(0, -2, 1); err != nil { // listenPort, its fast lane, high availability
		return nil, err
	}
	if err := r.writeFiles(opts); err != nil {
		return nil, fmt.Errorf("start rocketmq: %w", err)
	}
	heap := opts.JVM
	if len(heap) == 0 {
		heap = []string{"-Xms512m", "-Xmx512m", quickJIT}
	}
	jars := filepath.Join(cache, "rocketmq", "jars")
	r.Names = r.server("namesrv", jars, []string{"-Xms128m", "-Xmx128m", quickJIT}, "org.apache.rocketmq.namesrv.NamesrvStartup", r.pingNames)
	r.Broker = r.server("broker", jars, heap, "org.apache.rocketmq.broker.BrokerStartup", r.pingBroker)
	if opts.ReplicaOf == nil {
		if err := r.Names.Start(ctx); err != nil {
			return nil, err
		}
	}
	return r, r.Broker.Start(ctx)
}

// server describes one of the two processes: name.conf is its configuration, name.log its output.
func (r *RocketMQ) server(name, jars string, heap []string, main string, ready func(context.Context) error) *Server {
	jvm := slices.Concat(heap, []string{
		"-XX:MaxDirectMemorySize=512m", "-Dtls.server.mode=disabled", "-Duser.home=" + r.dir.path, "-Drocketmq.home.dir=" + r.home(),
	})
	for _, pkg := range []string{"jdk.internal.ref", "sun.nio.ch", "java.nio", "java.lang", "java.util"} {
		jvm = append(jvm, "--add-opens=java.base/"+pkg+"=ALL-UNNAMED")
	}
	return &Server{
		name: "rocketmq " + name,
		log:  filepath.Join(r.dir.path, name+".log"),
		command: func() *exec.Cmd {
			cmd := java(jvm, jars, main, "-c", filepath.Join(r.dir.path, name+".conf"))
			cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+r.home())
			return cmd
		},
		ready: ready,
	}
}

func (r *RocketMQ) home() string { return filepath.Join(r.dir.path, "home") }

// writeFiles makes the configuration of both servers and the broker's topic table.
func (r *RocketMQ) writeFiles(opts RocketMQOptions) error {
	store := filepath.Join(r.dir.path, "store")
	for _, dir := range []string{filepath.Join(r.home(), "conf"), filepath.Join(store, "config")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	names := map[string]string{
		"listenPort": fmt.Sprint(r.names.base), "bindAddress": "127.0.0.1",
		"kvConfigPath":    filepath.Join(r.dir.path, "kvConfig.json"),
		"configStorePath": filepath.Join(r.dir.path, "namesrv.properties"),
	}
	broker := map[string]string{
		"brokerClusterName": "test", "brokerName": brokerName, "brokerId": "0", "brokerRole": "ASYNC_MASTER",
		"brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "listenPort": fmt.Sprint(r.broker.base),
		"namesrvAddr": r.NameServer(), "flushDiskType": "ASYNC_FLUSH", "autoCreateTopicEnable": "false",
		"storePathRootDir": store, "storePathCommitLog": filepath.Join(store, "commitlog"),
		"mappedFileSizeCommitLog": "268435456", "mappedFileSizeConsumeQueue": "300000",
		"registerNameServerPeriod": "10000", // the shortest; a first registration can fail on a busy machine
		"timerWheelEnable":         "true", "timerPrecisionMs": "100", "diskMaxUsedSpaceRatio": "98",
	}
	if of := opts.ReplicaOf; of != nil {
		maps.Copy(broker, map[string]string{
			"brokerId": "1", "brokerRole": "SLAVE", "brokerIP2": "127.0.0.1", "namesrvAddr": of.NameServer(),
		})
	}
	maps.Copy(broker, opts.Config)
	topics, err := topicTable(opts.Topics)
	if err != nil {
		return err
	}
	return errors.Join(
		writeConf(filepath.Join(r.dir.path, "namesrv.conf"), names),
		writeConf(filepath.Join(r.dir.path, "broker.conf"), broker),
		os.WriteFile(filepath.Join(store, "config", "topics.json"), topics, 0o644))
}

// writeConf writes a Java properties file.
func writeConf(path string, config map[string]string) error {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&text, "%s=%s\n", key, config[key])
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

// topicTable is the content of the broker's topics.json. Topics in it are registered with the name server at the start;
// ones that are created shortly after it wait for the next registration.
func topicTable(topics map[string]int) ([]byte, error) {
	type topic struct {
		TopicName       string            `json:"topicName"`
		ReadQueueNums   int               `json:"readQueueNums"`
		WriteQueueNums  int               `json:"writeQueueNums"`
		Perm            int               `json:"perm"`
		TopicFilterType string            `json:"topicFilterType"`
		TopicSysFlag    int               `json:"topicSysFlag"`
		Order           bool              `json:"order"`
		Attributes      map[string]string `json:"attributes"`
	}
	table := map[string]topic{}
	for name, queues := range topics {
		table[name] = topic{name, queues, queues, readWrite, singleTag, 0, false, map[string]string{}}
	}
	return json.Marshal(map[string]any{
		"topicConfigTable": table,
		"dataVersion":      map[string]int{"counter": 1, "stateVersion": 0, "timestamp": 1},
	})
}

// NameServer returns host:port of the name server, which is what clients are configured with.
func (r *RocketMQ) NameServer() string { return loopback(r.names.base) }

// BrokerAddr returns host:port of the broker.
func (r *RocketMQ) BrokerAddr() string { return loopback(r.broker.base) }

// Crash is how a server of it ended and what it said, if it was not told to end.
func (r *RocketMQ) Crash() string { return cmp.Or(r.Broker.Crash(), r.Names.Crash()) }

// Close kills both servers and removes their directory. Closing twice is harmless.
func (r *RocketMQ) Close() error {
	if r.names != nil {
		r.names.release()
	}
	return closeServer(r.dir, r.broker, r.Broker, r.Names)
}
