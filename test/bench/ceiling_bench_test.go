package bench

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// discard reads and forgets: what the log and the reader alone can do.
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

// BenchmarkCeilingRead reads the backlog of BenchmarkDrain and does nothing with it.
func BenchmarkCeilingRead(b *testing.B) {
	for _, flavor := range testkit.Flavors() {
		b.Run(string(flavor), func(b *testing.B) {
			db := testkit.NewDatabase(b, testkit.DatabaseOptions{Flavor: flavor, Durable: true})
			pool := db.Connect(b, db.CreateSchema(b))
			f := &fixture{db: db, load: load{table: relay.NewTable(b, pool, schemaOf(b, pool), "t_local_message"), topic: topic}}
			mapping, err := table.Preset("t_local_message")
			testkit.Must(b, err)
			mapping.Schema, mapping.Name = f.table.Schema, "t_local_message"
			mapped, _, err := table.Load(b.Context(), pool, mapping)
			testkit.Must(b, err)
			info, err := server.Inspect(b.Context(), pool)
			testkit.Must(b, err)
			from, err := info.End(b.Context(), pool)
			testkit.Must(b, err)
			f.fill(b, backlog, 10)
			for b.Loop() {
				d := &discard{want: backlog, done: make(chan struct{})}
				ready := d.done
				reader := canal.New(canal.Config{
					Server: server.Config{Address: db.Addr(), User: "root"}, Tables: []*table.Table{mapped},
				}, d, zap.NewNop(), prometheus.NewRegistry())
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				began := time.Now()
				go func() { ended <- reader.Run(ctx, from) }()
				<-ready
				b.ReportMetric(backlog/time.Since(began).Seconds(), "rows/s")
				cancel()
				testkit.Must(b, <-ended)
			}
		})
	}
}

// BenchmarkCeilingProduce sends as many messages as BenchmarkDrain has, from memory.
func BenchmarkCeilingProduce(b *testing.B) {
	broker := brokers["kafka"](b).(relay.Kafka)
	out, err := kafka.New(kafka.Config{Brokers: []string{broker.Addr()}, MaxInFlight: backlog, MaxInFlightBytes: 1 << 30}, zap.NewNop(), prometheus.NewRegistry())
	testkit.Must(b, err)
	f := &fixture{}
	for b.Loop() {
		b.StopTimer()
		batch := make([]*outbox.Message, backlog)
		for i, row := range f.rows(backlog) {
			id := outbox.Identity{Table: "shop.t_local_message", ID: row.Key, MessageID: row.BizType + ":" + row.Key}
			batch[i] = &outbox.Message{Identity: id, Topic: topic, Key: row.Key, ShardingKey: row.ShardingKey, Body: row.Body, Partition: outbox.NoPartition}
		}
		b.StartTimer()
		answered := make(chan int, backlog)
		began := time.Now()
		for part := 0; part < backlog; part += 500 {
			out.Send(batch[part:part+500], func(list []sink.Result) { answered <- len(list) })
		}
		for n := 0; n < backlog; {
			n += <-answered
		}
		b.ReportMetric(backlog/time.Since(began).Seconds(), "rows/s")
	}
	testkit.Must(b, out.Close(b.Context()))
}
