package kafka

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// blackhole in the environment turns the test binary into a broker that stores nothing: a sink's cost can be measured only with
// the broker in another process.
const blackhole = "CANAL_OUTBOX_TEST_BLACKHOLE"

func serveBlackhole() {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(8, "orders"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return storedNothing(req.(*kmsg.ProduceRequest)), nil, true
	})
	fmt.Println(c.ListenAddrs()[0])
	io.Copy(io.Discard, os.Stdin) // until the test closes it, or ends
	c.Close()
}

// storedNothing acknowledges everything.
func storedNothing(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition = p.Partition
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

func startBlackhole(t testing.TB) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), blackhole+"=1")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmd.Start(); err1 != nil || err2 != nil || err != nil {
		t.Fatal(err1, err2, err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Log(err)
		}
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// pump sends n messages of 500 bytes in batches of 200 with at most 20 batches in flight, and waits for all.
func pump(t testing.TB, s *Sink, n int) {
	const size = 200
	room := make(chan struct{}, 20*size)
	failed := make(chan sink.Result, 1)
	body := bytes.Repeat([]byte("0123456789"), 50)
	backing := make([]outbox.Message, n)
	for from := 0; from < n; from += size {
		batch := make([]*outbox.Message, 0, size)
		for i := from; i < min(from+size, n); i++ {
			m := &backing[i]
			*m = outbox.Message{
				Identity: outbox.Identity{Table: "shop.t_local_message", ID: "4711", MessageID: "order:4711"},
				Topic:    "orders", Key: "SKU-1", ShardingKey: "SKU-1", Tag: "created", BizType: "order", Body: body, Partition: outbox.NoPartition,
			}
			if i%3 == 0 {
				m.Key, m.ShardingKey = "", ""
			}
			batch = append(batch, m)
			room <- struct{}{}
		}
		s.Send(batch, func(results []sink.Result) {
			for _, r := range results {
				if r.Class != outbox.ClassNone {
					select {
					case failed <- r:
					default:
					}
				}
				<-room
			}
		})
	}
	for range cap(room) {
		room <- struct{}{}
	}
	select {
	case r := <-failed:
		t.Fatalf("%s: %s", r.Class, r.Reason)
	default:
	}
}

// The aim is at most 3 allocations from the socket to the acknowledgement; reading a row needs most of them.
// The race detector makes sync.Pool drop a part of what it is given, so that objects of a pool are allocated again: that build is not judged.
func TestAllocationsPerMessage(t *testing.T) {
	if testkit.RaceDetector() {
		t.Skip("the race detector adds allocations")
	}
	s := newSink(t, startBlackhole(t))
	pump(t, s, 20_000)
	const n = 100_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pump(t, s, n)
	runtime.ReadMemStats(&after)
	if each := float64(after.Mallocs-before.Mallocs) / n; each > 1 {
		t.Errorf("%.2f allocations per message", each)
	} else {
		t.Logf("%.2f allocations, %d bytes per message", each, (after.TotalAlloc-before.TotalAlloc)/n)
	}
}

func BenchmarkSend(b *testing.B) {
	s := newSink(b, startBlackhole(b))
	pump(b, s, 20_000)
	b.ReportAllocs()
	b.ResetTimer()
	pump(b, s, b.N)
}
