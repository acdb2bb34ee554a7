package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// A stop while the broker is away waits for nothing and gives back what was not sent. A row that may have been sent stays SENDING; it
// stops no other.
func TestG47_AStopGivesBackWhatWasNotSent(t *testing.T) {
	claimed := func(m *outbox.Message) { m.Claim = "token" }
	run(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer, b.Sink.Down = nil, true })
		rows := []*outbox.Message{flowtest.Row(1, claimed), flowtest.Row(2, claimed), flowtest.Row(3, claimed), flowtest.Row(4)}
		if err := b.PublishRows(b.Ctx, rows...); err != nil {
			t.Fatal(err)
		}
		outage := outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster}
		unknown := outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster}
		time.Sleep(10 * time.Second) // the broker is silent
		synctest.Wait()
		b.Answer(outage, rows[0])
		b.Answer(unknown, rows[1])
		if state := b.Snapshot().Breaker; state == "closed" {
			t.Fatalf("the breaker is %s", state)
		}
		ctx, cancel := context.WithTimeout(b.Ctx, time.Minute)
		defer cancel()
		began := time.Now()
		if n := b.Drain(ctx); n != 2 || time.Since(began) > 0 {
			t.Errorf("the drain left %d messages after %v", n, time.Since(began))
		}
		b.WantCompletions("1 release")
		b.Answer(outage, rows[2], rows[3]) // as Close does
		b.WantCompletions("1 release", "3 release")
		for _, c := range b.Acks.Take() {
			if c.RetryCount != 0 || c.Claim != "token" {
				t.Errorf("row %s: count %d, claim %q", c.ID, c.RetryCount, c.Claim)
			}
		}
	})
}

// Rows behind one of their key are given back too, and rows that were claimed and never handed over.
func TestG47_AStopGivesBackRowsThatWait(t *testing.T) {
	keyed := func(m *outbox.Message) { m.Claim, m.ShardingKey = "token", "k" }
	run(t, Config{Ordered: []string{"shop.t"}}, func(b *bench) {
		synctest.Wait()
		b.Sink.Set(func() { b.Sink.Answer, b.Sink.Down = nil, true })
		rows := []*outbox.Message{flowtest.Row(1, keyed), flowtest.Row(2, keyed)}
		if err := b.PublishRows(b.Ctx, rows...); err != nil {
			t.Fatal(err)
		}
		b.WantSent("1")
		time.Sleep(10 * time.Second)
		b.Return(b.ReserveRows(flowtest.Row(3)), "token")
		if n := b.Drain(b.Ctx); n != 1 {
			t.Errorf("the drain left %d messages", n)
		}
		b.Answer(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster}, rows[0])
		b.WantCompletions("3 release", "2 release")
	})
}
