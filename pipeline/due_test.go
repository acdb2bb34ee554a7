package pipeline

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// What becomes due is announced to the timers: rows that are due later, half way, because the time of a commit is rounded; rows of the
// recovery window by the database's clock; and retries when the table has them.
func TestDueTimesAreAnnounced(t *testing.T) {
	cfg := Config{MaxRetry: 3, Backoff: outbox.Backoff{Base: 8 * time.Second}}
	run(t, cfg, func(b *bench) {
		want := func(what string, d ...time.Duration) {
			t.Helper()
			if !slices.Equal(b.asked, d) {
				t.Errorf("%s: announced %v, want %v", what, b.asked, d)
			}
			b.asked = nil
		}
		txn := b.txn(row(1, func(m *outbox.Message) { m.DueAt = time.Now().Add(10 * time.Second) }), row(2))
		txn.CommittedAt = time.Now()
		if err := b.Offer(b.ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.wantSent("2")
		want("a delayed row", 5*time.Second)

		b.sink.set(func() { b.sink.answer = always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"}) })
		b.offer(row(3))
		want("a retry that is not written")
		b.tracker.Written(b.acks.take())
		if len(b.asked) != 1 || b.asked[0] < 4*time.Second || b.asked[0] > 12*time.Second {
			t.Errorf("a retry: announced %v, want about %v", b.asked, cfg.Backoff.Base)
		}
		b.asked = nil

		b.table["4"] = outbox.Candidate{Status: outbox.Pending, Waiting: true, DueInMilli: 7000}
		if err := b.Connected(b.ctx, end(b.next), end(b.next+1)); err != nil {
			t.Fatal(err)
		}
		b.offer(row(4))
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
			return row(id, func(m *outbox.Message) { m.DueAt = commit.Add(after) })
		}
		offer := func(rows ...*outbox.Message) {
			t.Helper()
			txn := b.txn(rows...)
			txn.CommittedAt = commit
			if err := b.Offer(b.ctx, txn); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		near, soon := due(1, 10*time.Minute), due(3, time.Second)
		offer(near, due(2, 2*time.Hour), soon)
		b.wantSent("1", "3")
		b.wantCompletions("1 sent", "3 sent")
		own := due(9, 10*time.Minute)
		own.Grace = time.Minute // its application publishes it, unless it dies
		offer(own)
		b.wantSent("1", "3")
		if own.Later || !slices.Equal(b.asked, []time.Duration{time.Hour, 5 * time.Minute}) {
			t.Errorf("with a grace: %v, announced in %v", own.Later, b.asked)
		}
		b.asked = b.asked[:1]
		if !near.Later || soon.Later || len(b.asked) != 1 || b.asked[0] != time.Hour {
			t.Errorf("10 minutes: %v, a second: %v; announced in %v", near.Later, soon.Later, b.asked)
		}
		for _, class := range []outbox.Class{outbox.ClassPermanent, outbox.ClassRefused} {
			b.asked = nil
			b.acks.take()
			b.sink.set(func() { b.sink.answer = always(outbox.Outcome{Class: class, Reason: "no timers here"}) })
			offer(due(int(4+class), 10*time.Minute))
			if list := b.acks.take(); len(list) != 0 || len(b.asked) != 1 || b.Snapshot().Owned != 2 {
				t.Errorf("%s: completions %+v, announced in %v", class, list, b.asked)
			}
		}
	})
}
