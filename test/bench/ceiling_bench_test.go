package bench

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// discard reads and drops everything: the limit of the log and the reader.
type discard struct {
	rows int
	want int
	done chan struct{}
}

func (d *discard) Connected(context.Context, outbox.Position, outbox.Position, server.ID, bool) error {
	return nil
}

func (d *discard) Offer(_ context.Context, txn *outbox.Txn) error {
	d.rows += len(txn.Messages)
	if d.rows >= d.want && d.done != nil {
		close(d.done)
		d.done = nil
	}
	return nil
}

func (d *discard) Idle(outbox.Position) {}

func (d *discard) Gap(_ context.Context, gap outbox.Gap) (outbox.Position, error) {
	return gap.From, nil
}

func (d *discard) Disconnected(error) {}

// BenchmarkCeilingRead reads the backlog of BenchmarkDrain and drops it.
func BenchmarkCeilingRead(b *testing.B) {
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		f := newLogFixture(b, flavor)
		f.fill(b, backlog, 10)
		for b.Loop() {
			began, used := time.Now(), usageOf(b, os.Getpid())
			f.read(b, backlog)
			b.ReportMetric(backlog/time.Since(began).Seconds(), "rows/s")
			ownCPU(b, "read-cpu-"+string(flavor), used, backlog)
		}
	})
}

// BenchmarkCeilingProduce sends as many messages as BenchmarkDrain has, from memory.
func BenchmarkCeilingProduce(b *testing.B) {
	out := client(b, brokers["kafka"](b))
	f := &fixture{}
	for b.Loop() {
		b.StopTimer()
		batch := f.messages(backlog)
		b.StartTimer()
		answered := make(chan int, backlog)
		began, used := time.Now(), usageOf(b, os.Getpid())
		for part := 0; part < backlog; part += 500 {
			out.Send(batch[part:part+500], func(list []sink.Result) { answered <- len(list) })
		}
		for n := 0; n < backlog; {
			n += <-answered
		}
		b.ReportMetric(backlog/time.Since(began).Seconds(), "rows/s")
		ownCPU(b, "produce-cpu", used, backlog)
	}
	testkit.Must(b, out.Close(b.Context()))
}

// ownCPU reports the CPU time of this process for n messages since a time: the cost of a part of the relay that runs here.
func ownCPU(b *testing.B, what string, since usage, n int) {
	b.Helper()
	cpu := float64((usageOf(b, os.Getpid()).cpu - since.cpu).Microseconds()) / float64(n)
	b.ReportMetric(cpu, "cpu-µs/msg")
	measured(what, cpu)
}

// client returns the sink that the relay publishes with.
func client(b testing.TB, to relay.Broker) (out sink.Sink) {
	b.Helper()
	var err error
	switch broker := to.(type) {
	case relay.Kafka, *fakekafka.Cluster:
		out, err = (&kafka.Section{Brokers: []string{broker.(interface{ Addr() string }).Addr()}}).Open(sink.Limits{Messages: backlog, Bytes: 1 << 30}, zap.NewNop(), prometheus.NewRegistry())
	case relay.RocketMQ:
		out, err = (&rocketmq.Section{NameServers: []string{broker.NameServer()}, Group: "alone"}).Open(sink.Limits{}, zap.NewNop(), prometheus.NewRegistry())
	default:
		b.Fatalf("no client for %T", to)
	}
	testkit.Must(b, err)
	return out
}

// messages returns the next n rows as the relay publishes them.
func (l *load) messages(n int) []*outbox.Message {
	batch := make([]*outbox.Message, n)
	for i, row := range l.rows(n) {
		id := outbox.Identity{Table: "shop.t_local_message", ID: row.Key, MessageID: row.BizType + ":" + row.Key}
		batch[i] = &outbox.Message{Identity: id, Topic: topic, Key: row.Key, ShardingKey: row.ShardingKey, Body: row.Body, Partition: outbox.NoPartition}
	}
	return batch
}

// produceAlone sends messages at a rate, one after the other, and returns the duration of each: the time of the broker itself.
func produceAlone(b testing.TB, to relay.Broker, n int, perSecond rate.Limit) (took []time.Duration) {
	b.Helper()
	out, l := client(b, to), &load{topic: topic}
	limit, answered := rate.NewLimiter(perSecond, 1), make(chan outbox.Outcome)
	warm := 100 // connections and routes
	for i, m := range l.messages(warm + n) {
		testkit.Must(b, limit.Wait(b.Context()))
		began := time.Now()
		out.Send([]*outbox.Message{m}, func(list []sink.Result) { answered <- list[0].Outcome })
		if o := <-answered; o.Class != outbox.ClassNone {
			b.Fatal(o.Reason)
		}
		if i >= warm {
			took = append(took, time.Since(began))
		}
	}
	testkit.Must(b, out.Close(b.Context()))
	return took
}
