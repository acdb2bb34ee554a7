package dispatch_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// A suspended topic holds its rows and the checkpoint. Rows of other topics continue, and the held rows are sent in the order of
// the log.
func TestLogOnlyRowsWaitForTheirTopic(t *testing.T) {
	run(t, Config{MaxInFlight: 4}, func(b *bench) {
		other := func(m *outbox.Message) { m.Topic = "other" }
		b.Sink.Set(func() {
			b.Sink.Missing["orders"] = true
			b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
				if m.Topic == "orders" && b.Sink.Missing["orders"] {
					return outbox.Outcome{Class: outbox.ClassTopic, Reason: "unknown topic"}
				}
				return outbox.Outcome{}
			}
		})
		b.OfferRows(flowtest.Row(1, flowtest.LogOnly))
		b.OfferRows(flowtest.Row(2, flowtest.LogOnly), flowtest.Row(3, flowtest.LogOnly, other), flowtest.Row(4))
		b.WantCompletions("3 sent") // 4 is left to the sweep, which 1 and 2 cannot be
		b.Tracker.Settled(b.Acks.Take())
		if at, _, moved := b.Tracker.Checkpoint(); moved {
			t.Fatalf("the checkpoint %v passed a held row", at)
		}
		if s := b.Snapshot(); s.Held != 2 {
			t.Fatalf("%+v", s)
		}
		b.OfferRows(flowtest.Row(5, flowtest.LogOnly), flowtest.Row(6, flowtest.LogOnly))
		offered := make(chan error)
		go func() { offered <- b.Offer(b.Ctx, b.Txn(flowtest.Row(7, flowtest.LogOnly))) }()
		synctest.Wait()
		select {
		case <-offered:
			t.Fatal("the reader continues though there is no room")
		default:
		}
		b.Sink.Set(func() { b.Sink.Missing["orders"] = false })
		if err := <-offered; err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if sent, want := b.Sink.IDs(), []string{"1", "2", "5", "6", "7"}; !slices.Equal(sent[max(0, len(sent)-len(want)):], want) {
			t.Fatalf("sent %v, want %v at the end", sent, want)
		}
		done := b.Acks.Completions() // those of two answers come in any order
		if slices.Sort(done); !slices.Equal(done, []string{"1 sent", "2 sent", "5 sent", "6 sent", "7 sent"}) {
			t.Fatalf("completions %v", done)
		}
		if s := b.Snapshot(); s.Held != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// A refused row is tried again from memory, and when its attempts are used up it goes to the failed-message log with its message; the
// checkpoint waits for both.
func TestLogOnlyRowsAreTriedAgain(t *testing.T) {
	cfg := Config{MaxRetry: 2, Backoff: outbox.Backoff{Schedule: []time.Duration{time.Minute}}}
	run(t, cfg, func(b *bench) {
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"})
		b.OfferRows(flowtest.Row(1, flowtest.LogOnly))
		b.OfferRows(flowtest.Row(2, flowtest.LogOnly, func(m *outbox.Message) { m.Fault = "no topic" }))
		b.WantCompletions("2 failed")
		time.Sleep(30 * time.Second)
		b.WantSent("1")
		time.Sleep(5 * time.Minute)
		b.WantSent("1", "1", "1")
		b.WantCompletions("2 failed", "1 failed")
		list := b.Acks.Take()
		for _, c := range list {
			if !c.LogOnly || c.Message == nil || string(c.Message.Body) != "x" || c.Reason == "" {
				t.Errorf("completion %+v", c)
			}
		}
		if n := b.Tracker.Unwritten().Bytes; n != list[0].Message.Size()+list[1].Message.Size() {
			t.Errorf("%d bytes wait for the failed-message log", n)
		}
		b.Tracker.Settled(list)
		b.Tracker.Written(list)
		if at, _, _ := b.Tracker.Checkpoint(); at.Offset != 200 || b.Tracker.Unwritten().Bytes != 0 || b.Snapshot().Owned != 0 {
			t.Fatalf("checkpoint %v, %d bytes, %+v", at, b.Tracker.Unwritten().Bytes, b.Snapshot())
		}
	})
}

// A part of the cluster that is away holds its rows in the retry buffer, and the breaker stays closed for the others.
func TestLogOnlyRowsOfAnAbsentPartStayInMemory(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		away := true
		b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
			if m.ID == "1" && away {
				return outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"}
			}
			return outbox.Outcome{}
		}
		b.OfferRows(flowtest.Row(1, flowtest.LogOnly))
		for i := range 20 {
			time.Sleep(time.Second)
			b.OfferRows(flowtest.Row(10+i, flowtest.LogOnly))
		}
		if s := b.Snapshot(); s.RetryBuffer+s.InFlight != 1 || s.Breaker != "closed" || b.Triggered() != 0 {
			t.Fatalf("%+v", s)
		}
		b.Sink.Set(func() { away = false })
		time.Sleep(10 * time.Second)
		held := b.Acks.Completions()
		if len(held) != 21 || held[20] != "1 sent" {
			t.Fatalf("sent %v", held)
		}
	})
}
