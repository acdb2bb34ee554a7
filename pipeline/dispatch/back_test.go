package dispatch_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// D16: what was left to the sweep in an outage does not wait for the next one: a sweep is asked for as soon as the broker is back.
func TestD16_SweepStartsWhenTheBrokerIsBack(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Sink.Set(func() {
			b.Sink.Down, b.Sink.Answer = true, flowtest.Always(outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: "refused"})
		})
		b.OfferRows(flowtest.Row(1), flowtest.Row(2), flowtest.Row(3), flowtest.Row(4), flowtest.Row(5))
		time.Sleep(time.Minute)
		if n := b.Triggered(); n != 0 {
			t.Fatalf("%d triggers during the outage", n)
		}
		b.Sink.Set(func() { b.Sink.Down, b.Sink.Answer = false, flowtest.Always(outbox.Outcome{}) })
		time.Sleep(6 * time.Second)
		if n := b.Triggered(); n != 1 || !b.Dispatch.Closed() {
			t.Errorf("%d triggers when the broker was back", n)
		}
	})
}

// D16: the same for one partition, while others work all the time: its rows hold nothing up, neither room nor position, and are swept
// as soon as it is back.
func TestD16_SweepStartsWhenAPartitionIsBack(t *testing.T) {
	for name, path := range map[string]outbox.Path{"rows of the log": outbox.PathBinlog, "rows of the sweep": outbox.PathSweep} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{}, func(b *bench) {
				away := true
				b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
					if away && m.ShardingKey == "dead" {
						return outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"}
					}
					return outbox.Outcome{}
				}
				var rows []*outbox.Message
				for i := range 20 {
					rows = append(rows, flowtest.Row(i, func(m *outbox.Message) { m.ShardingKey = "dead" }))
				}
				if path == outbox.PathSweep {
					for _, m := range rows {
						m.Path, m.Claim = path, "ours"
					}
					if err := b.PublishRows(b.Ctx, rows...); err != nil {
						t.Fatal(err)
					}
				} else {
					b.OfferRows(rows...)
				}
				time.Sleep(20 * time.Second)
				list := b.Acks.Take()
				b.Tracker.Settled(list)
				b.Tracker.Written(list)
				b.OfferRows()
				if at, _, _ := b.Tracker.Checkpoint(); at.Offset != flowtest.End(b.Next).Offset {
					t.Errorf("the checkpoint stays at %v", at)
				}
				if s := b.Snapshot(); s.Owned != 1 || s.RetryBuffer != 0 || s.Breaker != "closed" {
					t.Errorf("in memory: %+v", s)
				}
				if n := b.Triggered(); n != 0 {
					t.Errorf("%d triggers while it was away", n)
				}
				b.Sink.Set(func() { away = false })
				time.Sleep(6 * time.Second)
				if n := b.Triggered(); n != 1 {
					t.Errorf("%d triggers when it was back", n)
				}
				b.WantCompletions("0 sent")
			})
		})
	}
}

// A probe row is dropped after a time, because its copy of the row grows old; a stop does not wait for one.
func TestScoutsAreGivenUpInTime(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"})
		b.OfferRows(flowtest.Row(1))
		time.Sleep(3 * time.Minute)
		if s := b.Snapshot(); s.Owned != 0 {
			t.Errorf("in memory: %+v", s)
		}
		b.OfferRows(flowtest.Row(2))
		if left := b.Drain(b.Ctx); left != 0 {
			t.Errorf("a stop waits for %d messages", left)
		}
	})
}

// B34: a suspended topic is looked at every five seconds at the latest, and at once when an operator asks for a sweep.
func TestB34_TopicIsTriedSoonAfterItWasMade(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Sink.Missing["orders"] = true
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassTopic, Scope: outbox.ScopeTopic, Reason: "unknown topic"})
		missing := func(is bool) { b.Sink.Set(func() { b.Sink.Missing["orders"] = is }) }
		for i := range 5 { // at any time
			missing(true)
			b.OfferRows(flowtest.Row(i))
			time.Sleep(time.Hour + time.Duration(i)*13*time.Second)
			missing(false)
			time.Sleep(5*time.Second + tick)
			if n := b.Triggered(); n != 1 || b.suspended("orders") {
				t.Fatalf("%d triggers 5 s after the topic was made", n)
			}
		}
		missing(true)
		b.OfferRows(flowtest.Row(9))
		time.Sleep(time.Hour)
		missing(false)
		b.TryTopics()
		if n := b.Triggered(); n != 1 || b.suspended("orders") {
			t.Errorf("%d triggers when an operator asked", n)
		}
	})
}

const tick = 50 * time.Millisecond

// B30: a broker that answers questions and leaves messages without an answer stays away for as long as that lasts, which is said once;
// a probe closes nothing. Fresh messages try now and then, because the silence may be about those that are out; the answer to one of them
// is enough.
func TestB30_OnlyTheAnswerToAMessageClosesTheBreaker(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer = nil }) // probes are answered
		b.OfferRows(flowtest.Row(1))
		time.Sleep(7 * time.Second)
		txn := b.Txn(flowtest.RowsFrom(2, 100, 1)...)
		b.Background(func(ctx context.Context) error { return b.Offer(ctx, txn) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := b.Snapshot(); s.Breaker == "closed" || s.Trouble == "" || time.Since(s.UnansweredSince) < 50*time.Second {
			t.Errorf("after a minute: %+v", s)
		}
		if n := b.Logs.Len(); n != 1 {
			t.Errorf("logged %v", b.Logs.All())
		}
		if n := len(b.Sink.IDs()); n < 5 || n > 115 {
			t.Errorf("%d messages were sent into the silence", n)
		}
		sent := b.Sink.IDs()
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{}) })
		time.Sleep(6 * time.Second) // the next trial is answered
		synctest.Wait()
		if !b.Dispatch.Closed() || b.Triggered() != 1 || b.Logs.Len() != 2 {
			t.Errorf("after the answer: %+v, logged %v", b.Snapshot(), b.Logs.All())
		}
		if got := b.Sink.IDs(); len(got) != 101 || !slices.Equal(got[:len(sent)], sent) {
			t.Errorf("%d messages were sent", len(got))
		}
	})
}
