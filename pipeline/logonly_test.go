package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// logOnly is a row of a table without a status.
func logOnly(m *outbox.Message) { m.Table, m.LogOnly = "shop.f", true }

// journal does what ack does with a batch: it returns what the journal holds afterwards, given what it held before.
func (b *bench) journal(held []string) []string {
	passed := b.tracker.Passed()
	list := b.acks.take()
	b.tracker.Settled(list)
	b.tracker.Checkpoint()
	for _, c := range passed {
		held = slices.DeleteFunc(held, func(id string) bool { return id == c.ID })
	}
	for _, c := range list {
		held = append(held, c.ID)
	}
	b.tracker.Written(passed)
	return held
}

// What the journal holds is skipped when the log shows it again; everything else of the window is published, without a look at the
// table. The entries leave when the checkpoint has passed the end that the log had when the stream was opened.
func TestLogOnlyRowsOfTheJournalAreSkipped(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.tracker.Own([]outbox.Completion{{Identity: row(1, logOnly).Identity, LogOnly: true}, {Identity: row(9, logOnly).Identity, LogOnly: true}})
		if err := b.Connected(b.ctx, outbox.Position{File: "binlog.000001", Offset: 4}, end(2)); err != nil {
			t.Fatal(err)
		}
		b.offer(row(1, logOnly), row(2, logOnly))
		b.wantSent("2")
		held := b.journal(b.journal([]string{"1", "9"}))
		if fmt.Sprint(held) != "[1 9]" { // 2 was passed at once
			t.Fatalf("journal %v", held)
		}
		b.offer(row(3, logOnly))
		if held = b.journal(b.journal(held)); len(held) != 0 || b.Snapshot().Owned != 0 {
			t.Fatalf("journal %v, %d owned", held, b.Snapshot().Owned)
		}
	})
}

// A suspended topic holds its rows and the checkpoint. Rows of other topics continue, and the held rows are sent in the order of
// the log.
func TestLogOnlyRowsWaitForTheirTopic(t *testing.T) {
	run(t, Config{MaxInFlight: 4}, func(b *bench) {
		other := func(m *outbox.Message) { m.Topic = "other" }
		b.sink.set(func() {
			b.sink.missing["orders"] = true
			b.sink.answer = func(m *outbox.Message) outbox.Outcome {
				if m.Topic == "orders" && b.sink.missing["orders"] {
					return outbox.Outcome{Class: outbox.ClassTopic, Reason: "unknown topic"}
				}
				return outbox.Outcome{}
			}
		})
		b.offer(row(1, logOnly))
		b.offer(row(2, logOnly), row(3, logOnly, other), row(4))
		b.wantCompletions("3 sent") // 4 is left to the sweep, which 1 and 2 cannot be
		b.tracker.Settled(b.acks.take())
		if at, _, moved := b.tracker.Checkpoint(); moved {
			t.Fatalf("the checkpoint %v passed a held row", at)
		}
		if s := b.Snapshot(); s.Held != 2 {
			t.Fatalf("%+v", s)
		}
		b.offer(row(5, logOnly), row(6, logOnly))
		offered := make(chan error)
		go func() { offered <- b.Offer(b.ctx, b.txn(row(7, logOnly))) }()
		synctest.Wait()
		select {
		case <-offered:
			t.Fatal("the reader goes on with a full hand")
		default:
		}
		b.sink.set(func() { b.sink.missing["orders"] = false })
		if err := <-offered; err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if sent, want := b.sink.ids(), []string{"1", "2", "5", "6", "7"}; !slices.Equal(sent[max(0, len(sent)-len(want)):], want) {
			t.Fatalf("sent %v, want %v at the end", sent, want)
		}
		done := b.acks.completions() // those of two answers come in any order
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
		b.sink.answer = always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"})
		b.offer(row(1, logOnly))
		b.offer(row(2, logOnly, func(m *outbox.Message) { m.Fault = "no topic" }))
		b.wantCompletions("2 failed")
		time.Sleep(30 * time.Second)
		b.wantSent("1")
		time.Sleep(5 * time.Minute)
		b.wantSent("1", "1", "1")
		b.wantCompletions("2 failed", "1 failed")
		list := b.acks.take()
		for _, c := range list {
			if !c.LogOnly || c.Message == nil || string(c.Message.Body) != "x" || c.Reason == "" {
				t.Errorf("completion %+v", c)
			}
		}
		if n := b.tracker.Failing(); n != list[0].Message.Size()+list[1].Message.Size() {
			t.Errorf("%d bytes wait for the failed-message log", n)
		}
		b.tracker.Settled(list)
		b.tracker.Written(list)
		if at, _, _ := b.tracker.Checkpoint(); at.Offset != 200 || b.tracker.Failing() != 0 || b.Snapshot().Owned != 0 {
			t.Fatalf("checkpoint %v, %d bytes, %+v", at, b.tracker.Failing(), b.Snapshot())
		}
	})
}

// A part of the cluster that is away holds its rows in the retry buffer, and the breaker stays closed for the others.
func TestLogOnlyRowsOfAnAbsentPartStayInHand(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		away := true
		b.sink.answer = func(m *outbox.Message) outbox.Outcome {
			if m.ID == "1" && away {
				return outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopePartition, Reason: "no leader"}
			}
			return outbox.Outcome{}
		}
		b.offer(row(1, logOnly))
		for i := range 20 {
			time.Sleep(time.Second)
			b.offer(row(10+i, logOnly))
		}
		if s := b.Snapshot(); s.RetryBuffer+s.InFlight != 1 || s.Breaker != "closed" || b.triggered() != 0 {
			t.Fatalf("%+v", s)
		}
		b.sink.set(func() { away = false })
		time.Sleep(10 * time.Second)
		held := b.journal(nil)
		if len(held) != 21 || held[20] != "1" {
			t.Fatalf("sent %v", held)
		}
	})
}
