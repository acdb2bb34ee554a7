package pipeline

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func always(o outbox.Outcome) func(*outbox.Message) outbox.Outcome {
	return func(*outbox.Message) outbox.Outcome { return o }
}

func TestCheckpointFollowsCompletionsInLogOrder(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.offer(row(1))
		b.offer(row(2))
		b.offer()
		b.wantCompletions("1 sent", "2 sent")
		list := b.acks.take()
		if _, _, moved := b.Checkpoint(); moved {
			t.Fatal("the checkpoint moved before anything was journalled")
		}
		b.Settled(list[1:])
		if _, _, moved := b.Checkpoint(); moved {
			t.Fatal("the checkpoint passed an unsettled transaction")
		}
		b.Settled(list[:1])
		if at, _, moved := b.Checkpoint(); !moved || at.Offset != 300 || at.GTIDs != uuid+":1-3" {
			t.Fatalf("checkpoint %v %v", at, moved)
		}
		b.Settled(list) // a repeated completion of an owned row counts once
		b.Written(list)
		if s := b.Snapshot(); s.Owned != 0 || s.Unwritten != 0 || s.InFlight != 0 {
			t.Fatalf("left over: %+v", s)
		}
	})
}

func TestOwnedRowsAreDropped(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1))
		b.offer(row(1))
		b.wantSent("1")
		b.Own([]outbox.Completion{{Identity: row(2).Identity}})
		b.offer(row(2))
		b.wantSent("1")
		if got := b.Reserve([]outbox.Candidate{{Identity: row(1).Identity}, {Identity: row(3).Identity}}); len(got) != 1 || got[0].ID != "3" {
			t.Fatalf("the sweep got %v", got)
		}
		b.offer(row(3))
		b.wantSent("1")
		b.Release([]outbox.Identity{row(1).Identity, row(3).Identity})
		b.offer(row(3))
		b.wantSent("1", "3") // 1 is the fast path's and was not released
	})
}

// A row in flight whose transaction comes again after a move back holds the checkpoint there, too.
func TestMoveBackKeepsTheMarkBehindRowsInFlight(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1))
		if _, err := b.Move(outbox.MySQL, end(0)); err != nil {
			t.Fatal(err)
		}
		b.next = 0
		b.offer(row(1))
		b.offer()
		b.wantSent("1")
		if at, _, moved := b.Checkpoint(); moved {
			t.Fatalf("the checkpoint %v passed a row in flight", at)
		}
		b.results(results(b.sink, outbox.Outcome{}, row(1)))
		b.Settled(b.acks.take())
		if at, _, moved := b.Checkpoint(); !moved || at.Offset != 200 {
			t.Fatalf("checkpoint %v %v", at, moved)
		}
	})
}

func TestRowsThatAreNotDueOrNotPendingAreDeferred(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		commit := time.Now()
		txn := b.txn(
			row(1, func(m *outbox.Message) { m.DueAt = commit.Add(time.Minute) }),
			row(2, func(m *outbox.Message) { m.DueAt = commit.Add(time.Second) }),
			row(3, func(m *outbox.Message) { m.Status = outbox.Held }),
		)
		txn.CommittedAt = commit
		if err := b.Offer(b.ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.wantSent("2")
		b.Settled(b.acks.take())
		if at, _, _ := b.Checkpoint(); at.Offset != 100 {
			t.Fatalf("deferred rows hold the checkpoint at %v", at)
		}
	})
}

// C10, P3: rows of the recovery window are published only when the table still says PENDING and due.
func TestC10_CatchUpZoneAsksTheTable(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.table["1"] = outbox.Candidate{Status: outbox.Pending, RetryCount: 2}
		b.table["2"] = outbox.Candidate{Status: outbox.Sent}
		b.table["3"] = outbox.Candidate{Status: outbox.Pending, Waiting: true}
		b.table["4"] = outbox.Candidate{Status: outbox.Sending}
		if err := b.Connected(b.ctx, end(0), end(2)); err != nil {
			t.Fatal(err)
		}
		b.offer(row(1), row(2), row(3))
		b.wantSent()
		b.offer(row(4), row(5)) // the end of the window
		b.wantSent("1")
		if b.triggers != 1 {
			t.Fatalf("%d triggers, want one for the row that was not found", b.triggers)
		}
		b.offer(row(6))
		b.wantSent("1", "6")
		b.Settled(b.acks.take())
		if at, _, _ := b.Checkpoint(); at.Offset != 300 {
			t.Fatalf("checkpoint %v", at)
		}
	})
}

// Rows of the recovery window that wait for a silent log do not keep an open breaker from being probed.
func TestWindowRowsDoNotHoldUpTheProbe(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.table["6"] = outbox.Candidate{Status: outbox.Pending}
		b.sink.answer = nil
		rows := []*outbox.Message{row(1), row(2), row(3), row(4), row(5)}
		b.offer(rows...)
		b.RaiseWindow(end(9))
		b.offer(row(6))
		b.sink.set(func() { b.sink.answer = always(outbox.Outcome{}) })
		b.results(results(b.sink, outbox.Outcome{Class: outbox.ClassOutage}, rows...))
		if b.BreakerClosed() {
			t.Fatal("the breaker is closed")
		}
		time.Sleep(5 * time.Second) // virtual
		b.wantSent("1", "2", "3", "4", "5", "1", "2", "3", "4", "5", "6")
	})
}

// Whoever waits for the one before it to find room can stop.
func TestOfferEndsWithItsContextBehindAnother(t *testing.T) {
	run(t, Config{MaxInFlight: 1}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1))
		first, stop := context.WithCancel(b.ctx)
		second, cancel := context.WithCancel(b.ctx)
		ended := make(chan error, 2)
		go func() { ended <- b.Offer(first, b.txn(row(2))) }()
		synctest.Wait()
		go func() { ended <- b.Offer(second, b.txn(row(3))) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the one behind ended with %v", err)
		}
		stop()
		<-ended
	})
}

func TestWindowRowsAreCheckedWhenTheLogFallsSilent(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.table["1"] = outbox.Candidate{Status: outbox.Pending}
		if err := b.Connected(b.ctx, end(0), end(9)); err != nil {
			t.Fatal(err)
		}
		b.offer(row(1))
		time.Sleep(2 * time.Second) // virtual
		b.wantSent("1")
	})
}

func TestBackPressureHoldsTheReader(t *testing.T) {
	run(t, Config{MaxInFlight: 2}, func(b *bench) {
		b.sink.answer = nil
		b.offer(row(1), row(2))
		offered := make(chan error, 1)
		go func() { offered <- b.Offer(b.ctx, b.txn(row(3))) }()
		synctest.Wait()
		b.wantSent("1", "2")
		if !b.BackPressure() {
			t.Fatal("back-pressure is not shown")
		}
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		if err := b.Publish(ctx, []*outbox.Message{row(9)}); err == nil {
			t.Fatal("the sweep found room")
		}
		b.Pipeline.results(results(b.sink, outbox.Outcome{}, row(1)))
		if err := <-offered; err != nil {
			t.Fatal(err)
		}
		b.wantSent("1", "2", "3")
	})
}

// D16, P7: an outage opens the breaker, burns no budget, and everything goes out when the broker is back.
func TestD16_OutageBurnsNoBudget(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.sink.set(func() {
			b.sink.down, b.sink.answer = true, always(outbox.Outcome{Class: outbox.ClassOutage, Reason: "refused"})
		})
		b.offer(row(1), row(2), row(3), row(4), row(5), row(6))
		if b.BreakerClosed() {
			t.Fatal("the breaker is closed")
		}
		time.Sleep(30 * time.Minute) // virtual
		b.wantCompletions()
		sends := len(b.sink.ids())
		if sends != 6 {
			t.Fatalf("%d sends while the breaker was open", sends)
		}
		b.sink.set(func() { b.sink.down, b.sink.answer = false, always(outbox.Outcome{}) })
		time.Sleep(2 * maxProbeDelay)
		synctest.Wait()
		got := b.acks.completions()
		slices.Sort(got)
		if want := []string{"1 sent", "2 sent", "3 sent", "4 sent", "5 sent", "6 sent"}; !slices.Equal(got, want) {
			t.Fatalf("completions %v", got)
		}
		if !b.BreakerClosed() {
			t.Fatal("the breaker stays open")
		}
	})
}

func TestSilentBrokerOpensTheBreakerWithoutSecondSends(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.set(func() { b.sink.answer, b.sink.down = nil, true })
		b.offer(row(1))
		time.Sleep(silenceLimit + 2*time.Second)
		if b.BreakerClosed() {
			t.Fatal("the breaker is closed after silence")
		}
		b.wantSent("1")
		b.Pipeline.results(results(b.sink, outbox.Outcome{}, row(1)))
		if !b.BreakerClosed() {
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

func TestUnknownOutcomeIsSentAgainAndAPoisonRowIsFoundOut(t *testing.T) {
	run(t, Config{MaxRetry: 5}, func(b *bench) {
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			if m.ID == "1" {
				return outbox.Outcome{Class: outbox.ClassUnknown, Reason: "time-out"}
			}
			return outbox.Outcome{}
		}
		b.offer(row(1))
		for i := range 40 {
			b.offer(row(100 + i))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if v := b.acks.completions(); !slices.Contains(v, "1 retry") {
			t.Fatalf("completions %v", v)
		}
	})
}

// An outage burns no budget: a message that had no answer before and is the trial of the half-open breaker is not refused for
// a third silence, and the breaker is tried again.
func TestD16_SilenceOfTheTrialIsNotARefusal(t *testing.T) {
	run(t, Config{MaxRetry: 5}, func(b *bench) {
		silent := outbox.Outcome{Class: outbox.ClassUnknown, Reason: "time-out"}
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
		for i := range openAfter {
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
		if !b.TopicSuspended("orders") || b.TopicSuspended("other") {
			t.Fatal("suspended the wrong topic")
		}
		b.sink.set(func() { delete(b.sink.missing, "orders") })
		time.Sleep(2 * maxSuspend)
		if b.TopicSuspended("orders") || b.triggers != 1 {
			t.Fatalf("suspended %v, %d triggers", b.TopicSuspended("orders"), b.triggers)
		}
	})
}

func TestClaimsAreGivenBackWhenASweptRowIsDeferred(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.sink.answer = always(outbox.Outcome{Class: outbox.ClassTopic, Reason: "unknown topic"})
		b.sink.missing["orders"] = true
		m := row(1, func(m *outbox.Message) { m.Claim, m.Path = "2026-01-01 00:00:00.000", outbox.PathSweep })
		b.Reserve([]outbox.Candidate{{Identity: m.Identity}})
		if err := b.Publish(b.ctx, []*outbox.Message{m}); err != nil {
			t.Fatal(err)
		}
		b.wantCompletions("1 release")
		list := b.acks.take()
		b.Settled(list)
		b.Written(list)
		if s := b.Snapshot(); s.Owned != 0 || s.Unwritten != 0 {
			t.Fatalf("left over: %+v", s)
		}
	})
}

// D16, design 1 "outage: per broker or partition": rows of a part that is away are deferred at once and without budget, they do
// not open the breaker, and rows for other parts flow.
func TestD16_PartOfTheClusterIsAway(t *testing.T) {
	run(t, Config{MaxRetry: 1}, func(b *bench) {
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			if m.Key == "dead" {
				return outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"}
			}
			return outbox.Outcome{}
		}
		for i := range 3 * openAfter {
			b.offer(row(i, func(m *outbox.Message) { m.Key = "dead" }))
		}
		b.offer(row(100))
		b.wantCompletions("100 sent")
		b.Settled(b.acks.take())
		if at, _, _ := b.Checkpoint(); at.Offset != end(uint64(3*openAfter+1)).Offset {
			t.Fatalf("rows of the part that is away hold the checkpoint at %v", at)
		}
	})
}
