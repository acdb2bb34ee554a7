package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

// peer is a compared relay: this one, or another program.
type peer struct {
	name    string
	id      func(*kgo.Record) string // the row's key
	start   func(b *testing.B)
	stop    func(b *testing.B)
	running func() bool
	pid     func() int
	sent    bool // it marks rows as sent
}

// peerUser is the account of the others, and its password: some of them refuse an empty one.
const peerUser = "peer"

// site is a peer's own table and topic, on the common server and broker.
type site struct {
	load
	broker relay.Broker
	addr   string // of the broker
	dir    string // private
}

// BenchmarkPeers runs this relay and others one after the other: the same server, broker, layout of the table, load and consumer.
// First 500 rows per second, one per transaction; then a backlog in the log, of transactions of ten rows, written while the relay
// was stopped. Measurements are at the consumer. The time of the drain starts with its first message, because virtual machines
// start slowly; the start is reported separately.
//
// PEERS_DATABASE is mysql or mariadb (default). Maxwell is included if PEERS_MAXWELL names its unpacked distribution.
func BenchmarkPeers(b *testing.B) {
	flavor := testkit.MariaDB
	if os.Getenv("PEERS_DATABASE") == string(testkit.MySQL) {
		flavor = testkit.MySQL
	}
	db := durable(b, flavor)
	kafka := testkit.NewKafka(b, testkit.KafkaOptions{JVM: []string{"-Xms512m", "-Xmx512m"}})
	testkit.Must(b, db.CreateUser(b.Context(), peerUser, peerUser, "ALL PRIVILEGES ON *.*"))
	for n, of := range []func(*testing.B, *site) *peer{ours, debezium, maxwell} {
		p := &site{load: newLoad(b, db, preset), broker: relay.Kafka{Kafka: kafka}, addr: kafka.Addr(), dir: b.TempDir()}
		p.topic = fmt.Sprintf("orders-%d", n)
		testkit.Must(b, kafka.CreateTopic(b.Context(), p.topic, 8, nil))
		if peer := of(b, p); peer != nil {
			b.Run(peer.name, func(b *testing.B) { p.measure(b, peer) })
		}
	}
}

func (p *site) measure(b *testing.B, one *peer) {
	arrivals := consume(b, p.addr, p.topic, one.id)
	for b.Loop() {
		b.StopTimer()
		one.start(b)
		p.warm(b, one, arrivals)
		used := usageOf(b, one.pid())
		n := share(15_000)
		rows, committed, inserts := p.pace(b, n, 500)
		report(b, "received", arrivals.after(b, rows, committed))
		report(b, "insert", inserts)
		b.ReportMetric(float64((usageOf(b, one.pid()).cpu-used.cpu).Microseconds())/float64(n), "cpu-µs/msg-500/s")
		one.stop(b)
		p.fill(b, share(backlog), 10)
		arrivals.forget()
		b.StartTimer()
		p.drain(b, one, arrivals)
		b.StopTimer()
		one.stop(b)
		b.StartTimer()
	}
}

// warm commits rows until the peer follows the log, and then until a virtual machine has compiled its code.
func (p *site) warm(b *testing.B, one *peer, arrivals *consumer) {
	testkit.WaitFor(b, 2*time.Minute, "a first message", func() bool {
		if !one.running() {
			b.Fatalf("%s has ended", one.name)
		}
		p.pace(b, 10, 50)
		return arrivals.seen() > 0
	})
	rows, committed, _ := p.pace(b, share(5_000), 500)
	arrivals.after(b, rows, committed)
}

func (p *site) drain(b *testing.B, one *peer, arrivals *consumer) {
	n, began := share(backlog), time.Now()
	one.start(b)
	testkit.WaitFor(b, 2*time.Minute, "the first message of the backlog", func() bool { return arrivals.seen() > 0 })
	first, used := time.Now(), usageOf(b, one.pid())
	testkit.WaitFor(b, 10*time.Minute, "the last message of the backlog", func() bool { return arrivals.seen() >= n })
	received, now := time.Now(), usageOf(b, one.pid())
	if one.sent {
		(&fixture{load: p.load}).awaitSent(b)
		now = usageOf(b, one.pid())
		b.ReportMetric(float64(n)/time.Since(first).Seconds(), "sent-rows/s")
	}
	b.ReportMetric(first.Sub(began).Seconds(), "first-s")
	b.ReportMetric(float64(n)/received.Sub(first).Seconds(), "received-rows/s")
	b.ReportMetric(float64((now.cpu-used.cpu).Microseconds())/float64(n), "cpu-µs/msg")
	b.ReportMetric(float64(now.peak)/(1<<20), "peak-MiB")
}

// ours writes SENT back, as always.
func ours(b *testing.B, p *site) *peer {
	r := relay.New(b, relay.Options{
		Source: p.db.Addr(), Tables: []*relay.Table{p.table}, Sink: p.broker.Sink(), Extra: "fallback: {interval: 30s}",
	})
	return &peer{
		name: "canal-outbox", id: idOfHeader("message_id"), pid: r.PID, running: r.Running, sent: true,
		start: func(b *testing.B) { r.Start(b) }, stop: func(b *testing.B) { r.Stop(b) },
	}
}

// debezium is Debezium Server with its outbox router, which creates the same message from the same columns.
func debezium(b *testing.B, p *site) *peer {
	cache, err := servers.Cache()
	testkit.Must(b, err)
	home := filepath.Join(cache, "debezium-server")
	runner, err := filepath.Glob(filepath.Join(home, "debezium-server-*runner.jar"))
	testkit.Must(b, err)
	if len(runner) == 0 {
		b.Logf("without Debezium Server: %s is not there", home)
		return nil
	}
	connector := map[bool]string{true: "mariadb.MariaDbConnector", false: "mysql.MySqlConnector"}[p.db.Flavor == testkit.MariaDB]
	properties(b, filepath.Join(p.dir, "conf", "application.properties"), map[string]string{
		"quarkus.http.host": "127.0.0.1", "quarkus.http.port": "0", "quarkus.log.level": "WARN", "quarkus.log.console.json": "false",
		"debezium.sink.type":                                                     "kafka",
		"debezium.sink.kafka.producer.bootstrap.servers":                         p.addr,
		"debezium.sink.kafka.producer.key.serializer":                            "org.apache.kafka.common.serialization.StringSerializer",
		"debezium.sink.kafka.producer.value.serializer":                          "org.apache.kafka.common.serialization.StringSerializer",
		"debezium.format.key":                                                    "simplestring",
		"debezium.format.header.schemas.enable":                                  "false",
		"debezium.format.value":                                                  "simplestring",
		"debezium.source.connector.class":                                        "io.debezium.connector." + connector,
		"debezium.source.offset.storage":                                         "org.apache.kafka.connect.storage.FileOffsetBackingStore",
		"debezium.source.offset.storage.file.filename":                           filepath.Join(p.dir, "offsets"),
		"debezium.source.offset.flush.interval.ms":                               "1000",
		"debezium.source.schema.history.internal":                                "io.debezium.storage.file.history.FileSchemaHistory",
		"debezium.source.schema.history.internal.file.filename":                  filepath.Join(p.dir, "schemas"),
		"debezium.source.database.hostname":                                      "127.0.0.1",
		"debezium.source.database.port":                                          fmt.Sprint(p.db.Port()),
		"debezium.source.database.user":                                          peerUser,
		"debezium.source.database.password":                                      peerUser,
		"debezium.source.database.server.id":                                     "40001",
		"debezium.source.topic.prefix":                                           "bench",
		"debezium.source.table.include.list":                                     p.table.FullName(),
		"debezium.source.include.schema.changes":                                 "false",
		"debezium.source.snapshot.mode":                                          "no_data",
		"debezium.source.poll.interval.ms":                                       "1", // its default of half a second is a latency
		"debezium.transforms":                                                    "outbox",
		"debezium.transforms.outbox.type":                                        "io.debezium.transforms.outbox.EventRouter",
		"debezium.transforms.outbox.table.field.event.id":                        "biz_key",
		"debezium.transforms.outbox.table.field.event.key":                       "sharding_key",
		"debezium.transforms.outbox.table.field.event.payload":                   "message_body",
		"debezium.transforms.outbox.route.by.field":                              "topic",
		"debezium.transforms.outbox.route.topic.replacement":                     `\\${routedByValue}`,
		"debezium.transforms.outbox.table.op.invalid.behavior":                   "warn",
		"debezium.transforms.outbox.table.expand.json.payload":                   "false",
		"debezium.source.database.ssl.mode":                                      "disabled",
		"debezium.source.schema.history.internal.store.only.captured.tables.ddl": "true",
	})
	return process(b, &peer{name: "debezium-server", id: idOfHeader("id")}, p.dir, func() *exec.Cmd {
		return exec.Command("java", "-Xmx1g", "-cp", strings.Join([]string{runner[0], "conf", filepath.Join(home, "lib", "*")}, ":"), "io.debezium.server.Main")
	})
}

// maxwell publishes a JSON description of each row.
func maxwell(b *testing.B, p *site) *peer {
	home := os.Getenv("PEERS_MAXWELL")
	if home == "" {
		b.Log("without Maxwell: PEERS_MAXWELL does not name its unpacked distribution")
		return nil
	}
	properties(b, filepath.Join(p.dir, "config.properties"), map[string]string{
		"host": "127.0.0.1", "port": fmt.Sprint(p.db.Port()), "user": peerUser, "password": peerUser, "schema_database": p.table.Schema + "_maxwell",
		"producer": "kafka", "kafka.bootstrap.servers": p.addr, "kafka_topic": p.topic, "kafka.acks": "all",
		"filter": "exclude: *.*, include: " + p.table.FullName(), "replica_server_id": "40002", "client_id": p.table.Schema, "log_level": "warn",
	})
	clients, err := filepath.Glob(filepath.Join(home, "lib", "kafka-clients", "kafka-clients-*.jar"))
	testkit.Must(b, err)
	if len(clients) == 0 {
		b.Fatalf("PEERS_MAXWELL: %s has no lib/kafka-clients", home)
	}
	_, version, _ := strings.Cut(strings.TrimSuffix(clients[len(clients)-1], ".jar"), "kafka-clients-")
	return process(b, &peer{name: "maxwell", id: idInJSON}, p.dir, func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(home, "bin", "maxwell"), "--config", filepath.Join(p.dir, "config.properties"), "--kafka_version="+version)
		cmd.Env = append(os.Environ(), "JAVA_OPTS=-Xmx1g")
		return cmd
	})
}

// idInJSON is biz_key of a row in Maxwell's form.
func idInJSON(r *kgo.Record) string {
	_, rest, _ := strings.Cut(string(r.Value), `"biz_key":"`)
	key, _, _ := strings.Cut(rest, `"`)
	return key
}

// process completes a peer that is a program with a directory.
func process(b *testing.B, p *peer, dir string, command func() *exec.Cmd) *peer {
	var child *testkit.Process
	log := filepath.Join(dir, "log")
	p.pid = func() int { return child.PID() }
	p.running = func() bool { return child.Running() }
	p.start = func(b *testing.B) {
		b.Helper()
		cmd := command()
		cmd.Dir = dir
		var err error
		child, err = testkit.Launch(cmd, log)
		testkit.Must(b, err)
	}
	p.stop = func(b *testing.B) {
		b.Helper()
		testkit.Must(b, child.Signal(syscall.SIGTERM))
		select {
		case <-child.Exited():
		case <-time.After(time.Minute):
			b.Fatalf("%s does not end", p.name)
		}
	}
	b.Cleanup(func() {
		if b.Failed() {
			b.Logf("the last lines of %s:\n%s", p.name, testkit.LogTail(log, 40))
		}
		_ = child.Kill() // its error says that the process cannot be signalled
	})
	return p
}

// properties writes a Java properties file.
func properties(b *testing.B, path string, entries map[string]string) {
	b.Helper()
	var text strings.Builder
	for name, value := range entries {
		fmt.Fprintf(&text, "%s=%s\n", name, value)
	}
	testkit.Must(b, os.MkdirAll(filepath.Dir(path), 0o700))
	testkit.Must(b, os.WriteFile(path, []byte(text.String()), 0o600))
}
