package pipeline_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// What becomes due is announced to the timers: rows that are due later, half way, because the time of a commit is rounded; rows of the
// recovery window by the database's clock; and retries when the table has them.
func TestDueTimesAreAnnounced(t *testing.T) {
	cfg := Config{MaxRetry: 3, Backoff: outbox.Backoff{Base: 8 * time.Second}}
	run(t, cfg, func(b *bench) {
		want := func(what string, d ...time.Duration) {
			t.Helper()
			if !slices.Equal(b.Asked, d) {
				t.Errorf("%s: announced %v, want %v", what, b.Asked, d)
			}
			b.Asked = nil
		}
		txn := b.Txn(flowtest.Row(1, func(m *outbox.Message) { m.DueAt = time.Now().Add(10 * time.Second) }), flowtest.Row(2))
		txn.CommittedAt = time.Now()
		if err := b.Offer(b.Ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.WantSent("2")
		want("a delayed row", 5*time.Second)

		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"}) })
		b.OfferRows(flowtest.Row(3))
		want("a retry that is not written")
		b.Tracker.Written(b.Acks.Take())
		if len(b.Asked) != 1 || b.Asked[0] < 4*time.Second || b.Asked[0] > 12*time.Second {
			t.Errorf("a retry: announced %v, want about %v", b.Asked, cfg.Backoff.Base)
		}
		b.Asked = nil

		b.SetRow("4", outbox.Candidate{Status: outbox.Pending, Waiting: true, DueInMilli: 7000})
		if err := b.Connected(b.Ctx, flowtest.End(b.Next), flowtest.End(b.Next+1)); err != nil {
			t.Fatal(err)
		}
		b.OfferRows(flowtest.Row(4))
		synctest.Wait()
		want("a row of the recovery window that waits", 7*time.Second)
	})
}

// Where the sink can deliver later, a row of the log goes there at once with its time. What is further away than the broker takes, or
// refused there, waits for a timer, and a refusal costs no attempt and not the time of the row.
func TestTheBrokerDelays(t *testing.T) {
	run(t, Config{LongestDelay: time.Hour}, func(b *bench) {
		commit := time.Now()
		due := func(id int, after time.Duration) *outbox.Message {
			return flowtest.Row(id, func(m *outbox.Message) { m.DueAt = commit.Add(after) })
		}
		offer := func(rows ...*outbox.Message) {
			t.Helper()
			txn := b.Txn(rows...)
			txn.CommittedAt = commit
			if err := b.Offer(b.Ctx, txn); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		near, soon := due(1, 10*time.Minute), due(3, time.Second)
		offer(near, due(2, 2*time.Hour), soon)
		b.WantSent("1", "3")
		b.WantCompletions("1 sent", "3 sent")
		own := due(9, 10*time.Minute)
		own.Grace = time.Minute // its application publishes it, unless it dies
		offer(own)
		b.WantSent("1", "3")
		if own.Later || !slices.Equal(b.Asked, []time.Duration{time.Hour, 5 * time.Minute}) {
			t.Errorf("with a grace: %v, announced in %v", own.Later, b.Asked)
		}
		b.Asked = b.Asked[:1]
		if !near.Later || soon.Later || len(b.Asked) != 1 || b.Asked[0] != time.Hour {
			t.Errorf("10 minutes: %v, a second: %v; announced in %v", near.Later, soon.Later, b.Asked)
		}
		for _, class := range []outbox.Class{outbox.ClassPermanent, outbox.ClassRefused} {
			b.Asked = nil
			b.Acks.Take()
			b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: class, Reason: "no timers here"}) })
			offer(due(int(4+class), 10*time.Minute))
			if list := b.Acks.Take(); len(list) != 0 || len(b.Asked) != 1 || b.Snapshot().Owned != 2 {
				t.Errorf("%s: completions %+v, announced in %v", class, list, b.Asked)
			}
		}
	})
}
