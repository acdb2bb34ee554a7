package dispatch_test

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// Several businesses share a table: the retries of a business type go before those of its topic and table, and leave other types alone.
func TestG27_RetriesOfABusinessType(t *testing.T) {
	schedule := func(d time.Duration) outbox.Backoff { return outbox.Backoff{Schedule: []time.Duration{d}} }
	cfg := Config{
		MaxRetry: 1, Backoff: schedule(time.Second),
		Topics: map[string]outbox.Retry{"slow": {Max: 3, Backoff: schedule(time.Hour)}},
		Types:  map[string]outbox.Retry{"refund": {Max: 5, Backoff: schedule(time.Minute)}, "": {Max: 9}},
	}
	run(t, cfg, func(b *bench) {
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"})
		for i, one := range []struct {
			kind, topic string
			count       int
		}{{"refund", "slow", 4}, {"refund", "slow", 5}, {"order", "slow", 3}, {"", "orders", 1}} {
			b.OfferRows(flowtest.Row(i+1, func(m *outbox.Message) {
				m.BizType, m.Topic, m.RetryCount, m.MaxRetry = one.kind, one.topic, one.count, -1
			}))
		}
		b.WantCompletions("1 retry", "2 failed", "3 failed", "4 failed")
		if got := b.Acks.Take()[0].Delay; got < 48*time.Second || got > 72*time.Second {
			t.Errorf("a refund waits %v", got)
		}
	})
}
