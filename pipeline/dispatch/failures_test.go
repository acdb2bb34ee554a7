package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// D16, P7: an outage opens the breaker, burns no budget, and everything goes out when the broker is back.
func TestD16_OutageBurnsNoBudget(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.Sink.Set(func() {
			b.Sink.Down, b.Sink.Answer = true, flowtest.Always(outbox.Outcome{Class: outbox.ClassOutage, Reason: "refused"})
		})
		b.OfferRows(flowtest.Row(1), flowtest.Row(2), flowtest.Row(3), flowtest.Row(4), flowtest.Row(5), flowtest.Row(6))
		if b.Dispatch.Closed() {
			t.Fatal("the breaker is closed")
		}
		time.Sleep(30 * time.Minute) // virtual
		b.WantCompletions()
		sends := len(b.Sink.IDs())
		if sends != 6 {
			t.Fatalf("%d sends while the breaker was open", sends)
		}
		b.Sink.Set(func() { b.Sink.Down, b.Sink.Answer = false, flowtest.Always(outbox.Outcome{}) })
		time.Sleep(2 * 5 * time.Second)
		synctest.Wait()
		got := b.Acks.Completions()
		slices.Sort(got)
		if want := []string{"1 sent", "2 sent", "3 sent", "4 sent", "5 sent", "6 sent"}; !slices.Equal(got, want) {
			t.Fatalf("completions %v", got)
		}
		if !b.Dispatch.Closed() {
			t.Fatal("the breaker stays open")
		}
	})
}

func TestSilentBrokerOpensTheBreakerWithoutSecondSends(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Sink.Set(func() { b.Sink.Answer, b.Sink.Down = nil, true })
		b.OfferRows(flowtest.Row(1))
		time.Sleep(5*time.Second + 2*time.Second)
		if b.Dispatch.Closed() {
			t.Fatal("the breaker is closed after silence")
		}
		b.WantSent("1")
		b.Answer(outbox.Outcome{}, flowtest.Row(1))
		if !b.Dispatch.Closed() {
			t.Fatal("an acknowledgement closes the breaker")
		}
	})
}

// D15, P8: permanent refusals fail at once, refusals use the budget, both without harm to neighbours.
func TestD15_PoisonRowsHarmOnlyThemselves(t *testing.T) {
	run(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Second, Max: time.Hour}}, func(b *bench) {
		b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
			switch m.ID {
			case "2":
				return outbox.Outcome{Class: outbox.ClassPermanent, Reason: "too large"}
			case "3", "4":
				return outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"}
			}
			return outbox.Outcome{}
		}
		b.OfferRows(flowtest.Row(1), flowtest.Row(2), flowtest.Row(3, func(m *outbox.Message) { m.RetryCount = 5 }), flowtest.Row(4, func(m *outbox.Message) { m.RetryCount = 1 }),
			flowtest.Row(5))
		b.WantCompletions("1 sent", "2 failed", "3 failed", "4 retry", "5 sent")
		list := b.Acks.Take()
		if s := list[3]; s.RetryCount != 1 || s.Delay <= 0 || s.Reason != "no" {
			t.Fatalf("retry %+v", s)
		}
	})
}

// B30: while the broker answers other messages, silence belongs to the message: it uses its own attempts and ends FAILED. The
// breaker stays closed, and no other message is affected. Silence of the broker uses no attempt of any message.
func TestB30_SilenceOfOneMessageIsItsOwn(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
			if m.Key == "poison" {
				return outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeMessage, Reason: "no answer, alone"}
			}
			return outbox.Outcome{}
		}
		poison := func(m *outbox.Message) { m.Key = "poison" }
		var rows []*outbox.Message
		for i := range 2 * 5 { // more than open the breaker
			rows = append(rows, flowtest.Row(i, poison), flowtest.Row(100+i))
		}
		b.OfferRows(rows...)
		b.OfferRows(flowtest.Row(200, poison, func(m *outbox.Message) { m.RetryCount = 1 }))
		got := b.Acks.Completions()
		for i := range 2 * 5 {
			if !slices.Contains(got, fmt.Sprint(i, " retry")) || !slices.Contains(got, fmt.Sprint(100+i, " sent")) {
				t.Fatalf("completions %v", got)
			}
		}
		if !slices.Contains(got, "200 failed") {
			t.Errorf("completions %v", got)
		}
		if !b.Dispatch.Closed() || b.Logs.FilterMessageSnippet("broker").Len() > 0 {
			t.Errorf("the breaker is not closed or spoke: %v", b.Logs.All())
		}
	})
}

// Silence of a partition while others answer delays no other message and uses no attempt. Its messages are sent again a few
// times and then left to the sweep.
func TestD16_SilenceOfAPartition(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopePartition, Reason: "not enough replicas"})
		for i := range 2 * 5 {
			b.OfferRows(flowtest.Row(i))
		}
		time.Sleep(time.Minute)
		b.WantCompletions()
		if s := b.Snapshot(); s.RetryBuffer != 0 || s.Owned > 8 || s.Breaker != "closed" {
			t.Errorf("left: %+v", s)
		}
	})
}

// A trial whose partition stays silent shows nothing about the broker. When it was the last message in memory, no row is left
// that could be the trial, and the breaker must not wait for one: the sweep sends nothing while the breaker is not closed.
func TestD16_TheLastTrialIsOfASilentPartition(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Sink.Set(func() {
			b.Sink.Down, b.Sink.Answer = true, flowtest.Always(outbox.Outcome{Class: outbox.ClassOutage, Reason: "refused"})
		})
		b.OfferRows(flowtest.Row(1), flowtest.Row(2), flowtest.Row(3), flowtest.Row(4), flowtest.Row(5))
		if b.Dispatch.Closed() {
			t.Fatal("the breaker is closed")
		}
		b.Sink.Set(func() {
			b.Sink.Down, b.Sink.Answer = false, flowtest.Always(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopePartition, Reason: "not enough replicas"})
		})
		time.Sleep(3 * time.Minute)
		if s := b.Snapshot(); s.Breaker != "closed" || s.RetryBuffer != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A message whose outcome is unknown is sent again.
func TestUnknownOutcomeIsSentAgain(t *testing.T) {
	run(t, Config{MaxRetry: 5}, func(b *bench) {
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: "time-out"})
		b.OfferRows(flowtest.Row(1))
		b.WantSent("1")
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{}) })
		time.Sleep(time.Second)
		b.WantSent("1", "1")
		b.WantCompletions("1 sent")
	})
}

// An outage burns no budget: a message that had no answer before and is the trial of the half-open breaker is not refused for
// a third silence, and the breaker is tried again.
func TestD16_SilenceOfTheTrialIsNotARefusal(t *testing.T) {
	run(t, Config{MaxRetry: 5}, func(b *bench) {
		silent := outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: "time-out"}
		b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
			if m.ID == "1" {
				return silent
			}
			return outbox.Outcome{}
		}
		b.OfferRows(flowtest.Row(1))
		for i := range 3 { // two silences while others are answered
			time.Sleep(100 * time.Millisecond)
			b.OfferRows(flowtest.Row(100 + i))
		}
		time.Sleep(150 * time.Millisecond)
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassOutage}) })
		for i := range 5 {
			b.OfferRows(flowtest.Row(200 + i))
		}
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(silent) })
		time.Sleep(time.Minute)
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{}) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if v := b.Acks.Completions(); !slices.Contains(v, "1 sent") || slices.Contains(v, "1 retry") {
			t.Fatalf("completions %v", v)
		}
	})
}

// B34: a missing topic suspends its rows and harms no other; it flows when it exists.
func TestB34_TopicIsParkedAndComesBack(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Sink.Missing["orders"] = true
		b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
			if b.Sink.Missing[m.Topic] {
				return outbox.Outcome{Class: outbox.ClassTopic, Reason: "unknown topic"}
			}
			return outbox.Outcome{}
		}
		other := func(m *outbox.Message) { m.Topic = "other" }
		b.OfferRows(flowtest.Row(1), flowtest.Row(2, other))
		b.OfferRows(flowtest.Row(3), flowtest.Row(4, other))
		b.WantSent("1", "2", "4")
		b.WantCompletions("2 sent", "4 sent")
		if !b.suspended("orders") || b.suspended("other") {
			t.Fatal("suspended the wrong topic")
		}
		b.Sink.Set(func() { delete(b.Sink.Missing, "orders") })
		time.Sleep(2 * 10 * time.Second)
		if n := b.Triggered(); b.suspended("orders") || n != 1 {
			t.Fatalf("suspended %v, %d triggers", b.suspended("orders"), n)
		}
	})
}

func TestClaimsAreGivenBackWhenASweptRowIsDeferred(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassTopic, Reason: "unknown topic"})
		b.Sink.Missing["orders"] = true
		m := flowtest.Row(1, func(m *outbox.Message) { m.Claim, m.Path = "2026-01-01 00:00:00.000", outbox.PathSweep })
		if err := b.PublishRows(b.Ctx, m); err != nil {
			t.Fatal(err)
		}
		b.WantCompletions("1 release")
		list := b.Acks.Take()
		b.Tracker.Settled(list)
		b.Tracker.Written(list)
		if s := b.Snapshot(); s.Owned != 0 || s.Unwritten != 0 {
			t.Fatalf("left over: %+v", s)
		}
	})
}

// D16: rows of a part that is away are deferred at once and without budget, they do
// not open the breaker, and rows for other parts flow.
func TestD16_PartOfTheClusterIsAway(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
			if m.Key == "dead" {
				return outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"}
			}
			return outbox.Outcome{}
		}
		for i := range 3 * 5 {
			b.OfferRows(flowtest.Row(i, func(m *outbox.Message) { m.Key = "dead" }))
		}
		b.OfferRows(flowtest.Row(100))
		b.WantCompletions("100 sent")
		b.Tracker.Settled(b.Acks.Take())
		if at, _, _ := b.Tracker.Checkpoint(); at.Offset != flowtest.End(uint64(3*5+1)).Offset {
			t.Fatalf("rows of the part that is away hold the checkpoint at %v", at)
		}
	})
}

// B30: a message that is never answered, alone at a quiet time, opens the breaker, because no other message is answered. It does
// not keep others from being tried: an answer to one of them closes the breaker.
func TestB30_SilenceOfALoneMessageBlocksNoOther(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.Sink.Answer = flowtest.Of(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: "no answer"}, "1", "2")
		b.OfferRows(flowtest.Row(1), flowtest.Row(2))
		time.Sleep(10 * time.Minute) // virtual
		if b.Dispatch.Closed() {
			t.Fatal("the breaker is closed though no message is answered")
		}
		b.WantCompletions()
		ctx, cancel := context.WithTimeout(b.Ctx, 5*time.Minute)
		defer cancel()
		if err := b.Offer(ctx, b.Txn(flowtest.Row(3))); err != nil {
			t.Fatalf("no other message is tried: %v", err)
		}
		synctest.Wait()
		if got := b.Acks.Completions(); !slices.Contains(got, "3 sent") {
			t.Fatalf("completions %v: the silent messages block the others", got)
		}
	})
}

// A SENT row that is sent again brings no completion, whatever the broker answers. It leaves the registry, and an outage opens
// the breaker. The rows of the sweep and fresh rows still have room.
func TestARowThatIsSentStaysSent(t *testing.T) {
	for _, class := range []outbox.Class{
		outbox.ClassNone, outbox.ClassPermanent, outbox.ClassRefused, outbox.ClassTopic, outbox.ClassUnknown, outbox.ClassOutage,
	} {
		t.Run(class.String(), func(t *testing.T) {
			run(t, Config{MaxRetry: 1, MaxInFlight: 4}, func(b *bench) {
				again := flowtest.Row(1, func(m *outbox.Message) { m.Path = outbox.PathRedelivery })
				b.Sink.Set(func() { b.Sink.Answer = nil })
				if err := b.PublishRows(context.Background(), again); err != nil {
					t.Fatal(err)
				}
				waiting := flowtest.Row(2, func(m *outbox.Message) { m.Path = outbox.PathRedelivery })
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if err := b.PublishRows(ctx, waiting); err == nil {
					t.Error("more than a quarter of what may be in flight goes out again")
				}
				b.OfferRows(flowtest.Row(3))
				b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{}) })
				b.Answer(outbox.Outcome{Class: class, Reason: "why"}, again)
				b.WantCompletions()
				if b.suspended(again.Topic) != (class == outbox.ClassTopic) {
					t.Errorf("suspended %v", b.suspended(again.Topic))
				}
				if rest := b.ReserveRows(flowtest.Row(1, func(m *outbox.Message) { m.Topic = "another" })); len(rest) != 1 {
					t.Error("the row is owned still")
				}
				b.Sink.Set(func() {
					b.Sink.Answer, b.Sink.Down = flowtest.Always(outbox.Outcome{Class: class, Reason: "why"}), true
				})
				for n := range 20 { // an outage opens the breaker
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					_ = b.PublishRows(ctx, flowtest.Row(10+n, func(m *outbox.Message) { m.Path, m.Topic = outbox.PathRedelivery, "one more" }))
					cancel()
				}
				if b.Dispatch.Closed() != (class != outbox.ClassOutage) {
					t.Errorf("the breaker is closed: %v", b.Dispatch.Closed())
				}
				b.WantCompletions()
			})
		})
	}
}

// In a table that keeps the order of its keys no row waits for one that is SENT and goes out again, or that was FAILED.
func TestNoRowWaitsForAFinalOne(t *testing.T) {
	run(t, Config{MaxRetry: 1, Ordered: []string{flowtest.Row(1).Table}}, func(b *bench) {
		key := func(m *outbox.Message) { m.Key, m.ShardingKey = "k", "k" }
		again := flowtest.Row(1, key, func(m *outbox.Message) { m.Path = outbox.PathRedelivery })
		free, _ := b.Reserve([]outbox.Candidate{
			{Identity: again.Identity, Topic: again.Topic, Key: "k", Status: outbox.Sent},
			{Identity: flowtest.Row(2).Identity, Topic: again.Topic, Key: "k", Status: outbox.Failed},
		})
		if len(free) != 2 {
			t.Fatalf("free: %+v", free)
		}
		b.Tracker.Release(free[1:])
		b.Sink.Set(func() { b.Sink.Answer = nil })
		again.Entry = free[0].Entry
		if _, err := b.Publish(context.Background(), []*outbox.Message{again}, nil); err != nil {
			t.Fatal(err)
		}
		b.WantSent("1")
		b.Answer(outbox.Outcome{Class: outbox.ClassPermanent, Reason: "no"}, again)
		if n := b.Snapshot().Owned; n != 0 {
			t.Errorf("%d rows are owned", n)
		}
		if s := b.Dispatch.State(); s.WaitingKeys+s.WaitingRows > 0 {
			t.Error("the key waits")
		}
	})
}
