package dispatch_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// handSink keeps the way back of what it was given.
type handSink struct {
	sink.Sink
	done func([]sink.Result)
}

func (h *handSink) Send(_ []*outbox.Message, done func([]sink.Result)) { h.done = done }

// oneMessage returns the work for one message between the log and the table: admitted, sent, answered, written. Each is of another key than
// the one before.
func oneMessage(tb testing.TB, cfg Config) func() {
	reg := prometheus.NewRegistry()
	sweeps, acks, hand := &flowtest.World{}, &flowtest.Acks{}, &handSink{}
	track, err := tracker.New(outbox.MySQL, outbox.Position{File: "binlog.000001", Offset: 4}, sweeps, zap.NewNop(), reg)
	if err != nil {
		tb.Fatal(err)
	}
	d := dispatch.New(cfg, track, sweeps, hand, acks, flowtest.Table{}, zap.NewNop(), reg)
	if err := d.ReadTables(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	var rows []*outbox.Message
	for i := range 1000 {
		rows = append(rows, flowtest.Row(i, flowtest.Key(fmt.Sprint("order-", i%500))))
	}
	entries, results := make([]*tracker.Entry, 0, 1), make([]sink.Result, 1)
	i := 0
	return func() {
		m := rows[i%len(rows)]
		i++
		m.Entry = nil
		entries = track.Admit(0, []*outbox.Message{m}, entries[:0])
		if n := d.TryPublish(entries); n != 1 {
			tb.Fatal("no room")
		}
		results[0] = sink.Result{Message: m}
		hand.done(results)
		track.Written(acks.Take())
	}
}
