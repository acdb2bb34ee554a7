package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// How often and when a refused row is tried again: its own limit goes before that of its business type, that before its topic's, that before its
// table's, that before the rest. Several businesses share a table, and leave each other alone.
func TestG27_RetriesOfABusinessType(t *testing.T) {
	rule := func(limit int, d time.Duration) outbox.Retry {
		return outbox.Retry{Max: limit, Backoff: outbox.Backoff{Schedule: []time.Duration{d}}}
	}
	cfg := Config{
		MaxRetry: 1, Backoff: rule(1, time.Second).Backoff,
		Tables: map[string]outbox.Retry{"shop.t": rule(2, time.Minute)},
		Topics: map[string]outbox.Retry{"slow": rule(3, time.Hour), "often": {Max: 4}},
		Types:  map[string]outbox.Retry{"refund": rule(5, 10*time.Minute), "": {Max: 9}},
	}
	run(t, cfg, func(b *bench) {
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"})
		for i, c := range []struct {
			count              int
			table, topic, kind string
			own                int
			wait               time.Duration // 0: it has failed
		}{
			{1, "shop.other", "orders", "", -1, 0},
			{1, "shop.t", "orders", "", -1, time.Minute},
			{2, "shop.t", "orders", "", -1, 0},
			{2, "shop.t", "slow", "", -1, time.Hour},
			{3, "shop.t", "slow", "order", -1, 0},
			{3, "shop.t", "often", "", -1, time.Minute},
			{3, "shop.t", "often", "", 3, 0},
			{4, "shop.t", "slow", "refund", -1, 10 * time.Minute},
			{5, "shop.t", "slow", "refund", -1, 0},
			{3, "shop.t", "slow", "refund", 3, 0},
		} {
			b.OfferRows(flowtest.Row(i, func(m *outbox.Message) {
				m.RetryCount, m.Table, m.Topic, m.BizType, m.MaxRetry = c.count, c.table, c.topic, c.kind, c.own
			}))
			want := "failed"
			if c.wait > 0 {
				want = "retry"
			}
			b.WantCompletions(fmt.Sprint(i, " ", want))
			if got := b.Acks.Take()[0].Delay; c.wait > 0 && (got < c.wait*8/10 || got > c.wait*12/10) {
				t.Errorf("row %d waits %v, want %v", i, got, c.wait)
			}
		}
	})
}
