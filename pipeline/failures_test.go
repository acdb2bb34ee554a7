package pipeline

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// D16, P7: an outage opens the breaker, burns no budget, and everything goes out when the broker is back.
func TestD16_OutageBurnsNoBudget(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.sink.set(func() {
			b.sink.down, b.sink.answer = true, always(outbox.Outcome{Class: outbox.ClassOutage, Reason: "refused"})
		})
		b.offer(row(1), row(2), row(3), row(4), row(5), row(6))
		if b.dispatch.Closed() {
			t.Fatal("the breaker is closed")
		}
		time.Sleep(30 * time.Minute) // virtual
		b.wantCompletions()
		sends := len(b.sink.ids())
		if sends != 6 {
			t.Fatalf("%d sends while the breaker was open", sends)
		}
		b.sink.set(func() { b.sink.down, b.sink.answer = false, always(outbox.Outcome{}) })
		time.Sleep(2 * 5 * time.Second)
		synctest.Wait()
		got := b.acks.completions()
		slices.Sort(got)
		if want := []string{"1 sent", "2 sent", "3 sent", "4 sent", "5 sent", "6 sent"}; !slices.Equal(got, want) {
			t.Fatalf("completions %v", got)
		}
		if !b.dispatch.Closed() {
			t.Fatal("the breaker stays open")
		}
	})
}

func TestSilentBrokerOpensTheBreakerWithoutSecondSends(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.set(func() { b.sink.answer, b.sink.down = nil, true })
		b.offer(row(1))
		time.Sleep(5*time.Second + 2*time.Second)
		if b.dispatch.Closed() {
			t.Fatal("the breaker is closed after silence")
		}
		b.wantSent("1")
		b.answer(outbox.Outcome{}, row(1))
		if !b.dispatch.Closed() {
			t.Fatal("an acknowledgement closes the breaker")
		}
	})
}

// D15, P8: permanent refusals fail at once, refusals use the budget, both without harm to neighbours.
func TestD15_PoisonRowsHarmOnlyThemselves(t *testing.T) {
	run(t, Config{MaxRetry: 5, Backoff: outbox.Backoff{Base: time.Second, Max: time.Hour}}, func(b *bench) {
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			switch m.ID {
			case "2":
				return outbox.Outcome{Class: outbox.ClassPermanent, Reason: "too large"}
			case "3", "4":
				return outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"}
			}
			return outbox.Outcome{}
		}
		b.offer(row(1), row(2), row(3, func(m *outbox.Message) { m.RetryCount = 5 }), row(4, func(m *outbox.Message) { m.RetryCount = 1 }),
			row(5))
		b.wantCompletions("1 sent", "2 failed", "3 failed", "4 retry", "5 sent")
		list := b.acks.take()
		if s := list[3]; s.RetryCount != 1 || s.Delay <= 0 || s.Reason != "no" {
			t.Fatalf("retry %+v", s)
		}
	})
}

// How often and when a refused row is tried again: its own limit goes before its topic's, that before its table's, that before the rest.
func TestRetriesOfATableAndATopic(t *testing.T) {
	schedule := func(d time.Duration) outbox.Backoff { return outbox.Backoff{Schedule: []time.Duration{d}} }
	cfg := Config{
		MaxRetry: 1, Backoff: schedule(time.Second),
		Tables: map[string]outbox.Retry{"shop.t": {Max: 2, Backoff: schedule(time.Minute)}},
		Topics: map[string]outbox.Retry{"slow": {Max: 3, Backoff: schedule(time.Hour)}, "often": {Max: 4}},
	}
	run(t, cfg, func(b *bench) {
		b.sink.answer = always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"})
		n := 0
		tried := func(count int, table, topic string, own int) {
			n++
			b.offer(row(n, func(m *outbox.Message) { m.RetryCount, m.Table, m.Topic, m.MaxRetry = count, table, topic, own }))
		}
		tried(1, "shop.other", "orders", -1)
		tried(1, "shop.t", "orders", -1)
		tried(2, "shop.t", "orders", -1)
		tried(2, "shop.t", "slow", -1)
		tried(3, "shop.t", "slow", -1)
		tried(3, "shop.t", "often", -1)
		tried(3, "shop.t", "often", 3)
		b.wantCompletions("1 failed", "2 retry", "3 failed", "4 retry", "5 failed", "6 retry", "7 failed")
		list := b.acks.take()
		for i, want := range map[int]time.Duration{1: time.Minute, 3: time.Hour, 5: time.Minute} {
			if got := list[i].Delay; got < want*8/10 || got > want*12/10 {
				t.Errorf("row %d waits %v, want %v", i+1, got, want)
			}
		}
	})
}

// B30: while the broker answers other messages, silence belongs to the message: it uses its own attempts and ends FAILED. The
// breaker stays closed, and no other message is affected. Silence of the broker uses no attempt of any message.
func TestB30_SilenceOfOneMessageIsItsOwn(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			if m.Key == "poison" {
				return outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeMessage, Reason: "no answer, alone"}
			}
			return outbox.Outcome{}
		}
		poison := func(m *outbox.Message) { m.Key = "poison" }
		var rows []*outbox.Message
		for i := range 2 * 5 { // more than open the breaker
			rows = append(rows, row(i, poison), row(100+i))
		}
		b.offer(rows...)
		b.offer(row(200, poison, func(m *outbox.Message) { m.RetryCount = 1 }))
		got := b.acks.completions()
		for i := range 2 * 5 {
			if !slices.Contains(got, fmt.Sprint(i, " retry")) || !slices.Contains(got, fmt.Sprint(100+i, " sent")) {
				t.Fatalf("completions %v", got)
			}
		}
		if !slices.Contains(got, "200 failed") {
			t.Errorf("completions %v", got)
		}
		if !b.dispatch.Closed() || b.logs.FilterMessageSnippet("broker").Len() > 0 {
			t.Errorf("the breaker is not closed or spoke: %v", b.logs.All())
		}
	})
}

// Silence of a partition while others answer delays no other message and uses no attempt. Its messages are sent again a few
// times and then left to the sweep.
func TestD16_SilenceOfAPartition(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.sink.answer = always(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopePartition, Reason: "not enough replicas"})
		for i := range 2 * 5 {
			b.offer(row(i))
		}
		time.Sleep(time.Minute)
		b.wantCompletions()
		if s := b.Snapshot(); s.RetryBuffer != 0 || s.Owned > 8 || s.Breaker != "closed" {
			t.Errorf("left: %+v", s)
		}
	})
}

// A trial whose partition stays silent shows nothing about the broker. When it was the last message in memory, no row is left
// that could be the trial, and the breaker must not wait for one: the sweep sends nothing while the breaker is not closed.
func TestD16_TheLastTrialIsOfASilentPartition(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.set(func() {
			b.sink.down, b.sink.answer = true, always(outbox.Outcome{Class: outbox.ClassOutage, Reason: "refused"})
		})
		b.offer(row(1), row(2), row(3), row(4), row(5))
		if b.dispatch.Closed() {
			t.Fatal("the breaker is closed")
		}
		b.sink.set(func() {
			b.sink.down, b.sink.answer = false, always(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopePartition, Reason: "not enough replicas"})
		})
		time.Sleep(3 * time.Minute)
		if s := b.Snapshot(); s.Breaker != "closed" || s.RetryBuffer != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What the sink did not hear about is sent again.
func TestUnknownOutcomeIsSentAgain(t *testing.T) {
	run(t, Config{MaxRetry: 5}, func(b *bench) {
		b.sink.answer = always(outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: "time-out"})
		b.offer(row(1))
		b.wantSent("1")
		b.sink.set(func() { b.sink.answer = always(outbox.Outcome{}) })
		time.Sleep(time.Second)
		b.wantSent("1", "1")
		b.wantCompletions("1 sent")
	})
}

// An outage burns no budget: a message that had no answer before and is the trial of the half-open breaker is not refused for
// a third silence, and the breaker is tried again.
func TestD16_SilenceOfTheTrialIsNotARefusal(t *testing.T) {
	run(t, Config{MaxRetry: 5}, func(b *bench) {
		silent := outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: "time-out"}
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			if m.ID == "1" {
				return silent
			}
			return outbox.Outcome{}
		}
		b.offer(row(1))
		for i := range 3 { // two silences while others are answered
			time.Sleep(100 * time.Millisecond)
			b.offer(row(100 + i))
		}
		time.Sleep(150 * time.Millisecond)
		b.sink.set(func() { b.sink.answer = always(outbox.Outcome{Class: outbox.ClassOutage}) })
		for i := range 5 {
			b.offer(row(200 + i))
		}
		b.sink.set(func() { b.sink.answer = always(silent) })
		time.Sleep(time.Minute)
		b.sink.set(func() { b.sink.answer = always(outbox.Outcome{}) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if v := b.acks.completions(); !slices.Contains(v, "1 sent") || slices.Contains(v, "1 retry") {
			t.Fatalf("completions %v", v)
		}
	})
}

// B34: a missing topic suspends its rows and harms no other; it flows when it exists.
func TestB34_TopicIsParkedAndComesBack(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.missing["orders"] = true
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			if b.sink.missing[m.Topic] {
				return outbox.Outcome{Class: outbox.ClassTopic, Reason: "unknown topic"}
			}
			return outbox.Outcome{}
		}
		other := func(m *outbox.Message) { m.Topic = "other" }
		b.offer(row(1), row(2, other))
		b.offer(row(3), row(4, other))
		b.wantSent("1", "2", "4")
		b.wantCompletions("2 sent", "4 sent")
		if !b.suspended("orders") || b.suspended("other") {
			t.Fatal("suspended the wrong topic")
		}
		b.sink.set(func() { delete(b.sink.missing, "orders") })
		time.Sleep(2 * 10 * time.Second)
		if n := b.triggered(); b.suspended("orders") || n != 1 {
			t.Fatalf("suspended %v, %d triggers", b.suspended("orders"), n)
		}
	})
}

func TestClaimsAreGivenBackWhenASweptRowIsDeferred(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.answer = always(outbox.Outcome{Class: outbox.ClassTopic, Reason: "unknown topic"})
		b.sink.missing["orders"] = true
		m := row(1, func(m *outbox.Message) { m.Claim, m.Path = "2026-01-01 00:00:00.000", outbox.PathSweep })
		if err := b.publish(b.ctx, m); err != nil {
			t.Fatal(err)
		}
		b.wantCompletions("1 release")
		list := b.acks.take()
		b.tracker.Settled(list)
		b.tracker.Written(list)
		if s := b.Snapshot(); s.Owned != 0 || s.Unwritten != 0 {
			t.Fatalf("left over: %+v", s)
		}
	})
}

// D16: rows of a part that is away are deferred at once and without budget, they do
// not open the breaker, and rows for other parts flow.
func TestD16_PartOfTheClusterIsAway(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			if m.Key == "dead" {
				return outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"}
			}
			return outbox.Outcome{}
		}
		for i := range 3 * 5 {
			b.offer(row(i, func(m *outbox.Message) { m.Key = "dead" }))
		}
		b.offer(row(100))
		b.wantCompletions("100 sent")
		b.tracker.Settled(b.acks.take())
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != end(uint64(3*5+1)).Offset {
			t.Fatalf("rows of the part that is away hold the checkpoint at %v", at)
		}
	})
}

// B30: a message that is never answered, alone at a quiet time, opens the breaker, because no other message is answered. It does
// not keep others from being tried: an answer to one of them closes the breaker.
func TestB30_SilenceOfALoneMessageBlocksNobody(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			if m.ID == "1" || m.ID == "2" {
				return outbox.Outcome{Class: outbox.ClassUnknown, Scope: outbox.ScopeCluster, Reason: "no answer"}
			}
			return outbox.Outcome{}
		}
		b.offer(row(1), row(2))
		time.Sleep(10 * time.Minute) // virtual
		if b.dispatch.Closed() {
			t.Fatal("the breaker is closed though nobody is answered")
		}
		b.wantCompletions()
		ctx, cancel := context.WithTimeout(b.ctx, 5*time.Minute)
		defer cancel()
		if err := b.Offer(ctx, b.txn(row(3))); err != nil {
			t.Fatalf("no other message is tried: %v", err)
		}
		synctest.Wait()
		if got := b.acks.completions(); !slices.Contains(got, "3 sent") {
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
				again := row(1, func(m *outbox.Message) { m.Path = outbox.PathRedelivery })
				b.sink.set(func() { b.sink.answer = nil })
				if err := b.publish(context.Background(), again); err != nil {
					t.Fatal(err)
				}
				waiting := row(2, func(m *outbox.Message) { m.Path = outbox.PathRedelivery })
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if err := b.publish(ctx, waiting); err == nil {
					t.Error("more than a quarter of what may be in flight goes out again")
				}
				b.offer(row(3))
				b.sink.set(func() { b.sink.answer = always(outbox.Outcome{}) })
				b.answer(outbox.Outcome{Class: class, Reason: "why"}, again)
				b.wantCompletions()
				if b.suspended(again.Topic) != (class == outbox.ClassTopic) {
					t.Errorf("suspended %v", b.suspended(again.Topic))
				}
				if rest := b.reserve(row(1, func(m *outbox.Message) { m.Topic = "another" })); len(rest) != 1 {
					t.Error("the row is owned still")
				}
				b.sink.set(func() { b.sink.answer, b.sink.down = always(outbox.Outcome{Class: class, Reason: "why"}), true })
				for n := range 20 { // an outage opens the breaker
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					_ = b.publish(ctx, row(10+n, func(m *outbox.Message) { m.Path, m.Topic = outbox.PathRedelivery, "one more" }))
					cancel()
				}
				if b.dispatch.Closed() != (class != outbox.ClassOutage) {
					t.Errorf("the breaker is closed: %v", b.dispatch.Closed())
				}
				b.wantCompletions()
			})
		})
	}
}

// In a table that keeps the order of its keys no row waits for one that is SENT and goes out again, or that was FAILED.
func TestFinalRowsHaveNoTurn(t *testing.T) {
	run(t, Config{MaxRetry: 1, Ordered: []string{row(1).Table}}, func(b *bench) {
		key := func(m *outbox.Message) { m.Key, m.ShardingKey = "k", "k" }
		again := row(1, key, func(m *outbox.Message) { m.Path = outbox.PathRedelivery })
		free, _ := b.Reserve([]outbox.Candidate{
			{Identity: again.Identity, Topic: again.Topic, Key: "k", Status: outbox.Sent},
			{Identity: row(2).Identity, Topic: again.Topic, Key: "k", Status: outbox.Failed},
		})
		if len(free) != 2 {
			t.Fatalf("free: %+v", free)
		}
		b.SetBack(free[1:])
		b.sink.set(func() { b.sink.answer = nil })
		again.Entry = free[0].Entry
		if _, err := b.Publish(context.Background(), []*outbox.Message{again}, nil); err != nil {
			t.Fatal(err)
		}
		b.wantSent("1")
		b.answer(outbox.Outcome{Class: outbox.ClassPermanent, Reason: "no"}, again)
		if n := b.Snapshot().Owned; n != 0 {
			t.Errorf("%d rows are owned", n)
		}
		if s := b.dispatch.State(); s.WaitingKeys+s.WaitingRows > 0 {
			t.Error("the key waits")
		}
	})
}
