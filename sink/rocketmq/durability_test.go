package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// A real primary that must wait for a replica and has none stores the message and answers FLUSH_SLAVE_TIMEOUT.
func TestG29_RealBrokerWithoutItsReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	r := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{"orders": 1}, Config: map[string]string{
		"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2", "slaveTimeout": "200", "waitTimeMillsInSendQueue": "10000",
	}})
	for durability, want := range map[string]outbox.Class{"strict": outbox.ClassUnknown, "lenient": outbox.ClassNone} {
		section := NewSection()
		section.NameServers, section.Durability = []string{r.NameServer()}, durability
		o := send(t, startSink(t, *section), message("orders", durability)).want(want)[0]
		if !o.LessDurable {
			t.Errorf("%s: %+v", durability, o)
		}
		t.Logf("%s: %+v", durability, o)
	}
	readAll(t, r, "orders", 2) // it has stored both
	section := NewSection()
	section.NameServers = []string{r.NameServer()}
	s := startSink(t, *section)
	if err := committed(t, s, "orders", 3*time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("messages that no replica has are as safe as acknowledged ones: %v", err)
	}
	section.Durability = "lenient"
	testkit.Must(t, committed(t, startSink(t, *section), "orders", time.Minute))
}

// What a broker has stored is as safe as what it acknowledges once it has flushed it, with its own statistics.
func TestP3_RealBrokerThatFlushes(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	r := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{"orders": 1}, Config: map[string]string{"flushDiskType": "SYNC_FLUSH"}})
	section := NewSection()
	section.NameServers = []string{r.NameServer()}
	s := startSink(t, *section)
	send(t, s, message("orders", "a")).want(outbox.ClassNone)
	testkit.Must(t, committed(t, s, "orders", time.Minute))
	readAll(t, r, "orders", 1)
	if found := section.Check(t.Context(), s, sink.Newest{Topics: []string{"orders", "nowhere"}, ReadBack: true}); len(found) != 1 || found[0].Subject != "topic nowhere" {
		t.Errorf("found %+v", found)
	}
	waits, err := s.remote.Waits(t.Context(), stateLimit, r.BrokerAddr())
	testkit.Must(t, err)
	log, err := s.remote.CommitLog(t.Context(), stateLimit, r.BrokerAddr(), waits)
	if testkit.Must(t, err); !waits.Flush || log.End == 0 || log.Unflushed != 0 || log.Unqueued != 0 {
		t.Errorf("%+v, %+v", waits, log)
	}
}

// A primary that waits for its replica reports how far that has got, and a message that the replica has not is not as safe as an acknowledged one.
func TestP3_RealBrokerWithItsReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	r := testkit.NewRocketMQ(t, testkit.RocketMQOptions{Topics: map[string]int{"orders": 1}, Config: map[string]string{
		"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2", "slaveTimeout": "200", "waitTimeMillsInSendQueue": "10000", "brokerIP2": "127.0.0.1",
	}})
	replica := testkit.NewRocketMQ(t, testkit.RocketMQOptions{ReplicaOf: r})
	section := NewSection()
	section.NameServers = []string{r.NameServer()}
	s := startSink(t, *section)
	testkit.WaitFor(t, time.Minute, "the replica to follow", func() bool { return send(t, s, message("orders", "a")).wait()[0].Class == outbox.ClassNone })
	testkit.Must(t, committed(t, s, "orders", time.Minute))
	testkit.Must(t, replica.Broker.Kill())
	if o := send(t, s, message("orders", "b")).wait()[0]; o.Class == outbox.ClassNone {
		t.Fatalf("without the replica: %+v", o)
	}
	if err := committed(t, s, "orders", 3*time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a message that the replica has not is as safe as an acknowledged one: %v", err)
	}
	testkit.Must(t, replica.Broker.Start(t.Context()))
	testkit.Must(t, committed(t, s, "orders", time.Minute))
}

func committed(t *testing.T, s *Sink, topic string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return s.Committed(ctx, topic)
}

// Committed waits for what the broker waits for before it acknowledges, and for no more.
func TestP3_CommittedIsWhatABrokerAcknowledges(t *testing.T) {
	behind := func(end int, rest string, unqueued int) string {
		return fmt.Sprintf(`{"table":{"commitLogMaxOffset":"%d","remainHowManyDataToFlush":%q,"dispatchBehindBytes":"%d"}}`, end, rest, unqueued)
	}
	runtime := func(end int, rest string) string { return behind(end, rest, 0) }
	replicas := func(acknowledged ...int) string {
		var list []string
		for _, n := range acknowledged {
			list = append(list, fmt.Sprintf(`{"slaveAckOffset":%d,"inSync":true}`, n))
		}
		return `{"haConnectionInfo":[` + strings.Join(list, ",") + `]}`
	}
	const none, flushes, copies = "brokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n", "brokerRole=ASYNC_MASTER\nflushDiskType=SYNC_FLUSH\n", "brokerRole=SYNC_MASTER\nflushDiskType=ASYNC_FLUSH\ninSyncReplicas=3\n"
	for name, c := range map[string]struct {
		config            string
		lenient           bool
		runtime, replicas []string // of one question after the other; the last one stays
		asked             int      // for the state, until it is so; 0: never
	}{
		"asynchronous":        {config: none, runtime: []string{runtime(1000, "9 B")}, asked: 2},
		"queued later":        {config: none, runtime: []string{behind(1000, "0 B", 9), behind(1000, "0 B", 9), behind(1000, "0 B", 0)}, asked: 3},
		"more to queue":       {config: none, runtime: []string{behind(1000, "0 B", 900), behind(9000, "0 B", 8900), behind(9000, "0 B", 7900)}, asked: 3},
		"never queued":        {config: flushes, runtime: []string{behind(1000, "0 B", 1)}, asked: -1},
		"lenient":             {lenient: true, runtime: []string{behind(1000, "9 B", 1), behind(1000, "9 B", 1), behind(1000, "9 B", 0)}, asked: 3},
		"lenient, not told":   {lenient: true, runtime: []string{`{"table":{}}`}, asked: 1},
		"does not report it":  {config: none, runtime: []string{`{"table":{"commitLogMaxOffset":"1000"}}`}, asked: -1},
		"flushed":             {config: flushes, runtime: []string{runtime(1000, "0 B")}, asked: 2},
		"flushed later":       {config: flushes, runtime: []string{runtime(1000, "900 B"), runtime(1000, "1 B"), runtime(1000, "0 B")}, asked: 3},
		"more is stored":      {config: flushes, runtime: []string{runtime(1000, "900 B"), runtime(9000, "1.0 KiB"), runtime(9000, "1.0 KiB")}, asked: 3},
		"never flushed":       {config: flushes, runtime: []string{runtime(1000, "0 B"), runtime(1000, "1 B")}, asked: -1},
		"has just started":    {config: flushes, runtime: []string{"", runtime(1000, "0 B")}, asked: 3},
		"copied":              {config: copies, runtime: []string{runtime(1000, "9 B")}, replicas: []string{replicas(1000, 1000)}, asked: 2},
		"copied later":        {config: copies, runtime: []string{runtime(1000, "9 B")}, replicas: []string{replicas(), replicas(999, 1000), replicas(1000, 1000, 0)}, asked: 3},
		"one replica only":    {config: copies, runtime: []string{runtime(1000, "9 B")}, replicas: []string{replicas(1000)}, asked: -1},
		"the master suffices": {config: strings.Replace(copies, "3", "1", 1), runtime: []string{runtime(1000, "9 B")}, asked: 2},
		"release 4":           {config: strings.Replace(copies, "inSyncReplicas=3\n", "", 1), runtime: []string{runtime(1000, "9 B")}, replicas: []string{replicas(1000)}, asked: 2},
		"all in sync":         {config: copies + "allAckInSyncStateSet=true\n", runtime: []string{runtime(1000, "9 B")}, replicas: []string{replicas(1000, 999)}, asked: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t)
			cluster.topic("orders")
			asked := 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cluster.brokers["broker-a"].state = map[int]func() string{
				remoting.BrokerConfig: func() string { return c.config },
				remoting.BrokerRuntime: func() string {
					asked++
					if c.asked < 0 && asked > 5 {
						cancel()
					}
					return c.runtime[min(asked, len(c.runtime))-1]
				},
				remoting.HAStatus: func() string { return c.replicas[min(asked, len(c.replicas))-1] },
			}
			s := newTestSink(t, cluster)
			s.alone.lenient = c.lenient
			err := s.Committed(ctx, "orders")
			if (err == nil) != (c.asked >= 0) || c.asked >= 0 && asked != c.asked {
				t.Errorf("%v after %d questions, want %d", err, asked, c.asked)
			}
		})
	}
}
