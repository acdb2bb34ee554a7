package recovery_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// After a page of the window whose rows all were to be published the table is asked for the next as a whole, and row by row only where one
// of them is not as it was inserted: what is published is the same.
func TestPagesOfUntouchedRowsAreLookedUpAsAWhole(t *testing.T) {
	pending := outbox.Candidate{Status: outbox.Pending}
	for name, c := range map[string]struct {
		state     outbox.Candidate
		missing   bool
		published bool
	}{
		"sent":        {state: outbox.Candidate{Status: outbox.Sent}},
		"claimed":     {state: outbox.Candidate{Status: outbox.Sending}},
		"waits":       {state: outbox.Candidate{Status: outbox.Pending, Waiting: true, DueInMilli: outbox.DueSlack.Milliseconds() + 1}},
		"not there":   {missing: true},
		"was refused": {state: outbox.Candidate{Status: outbox.Pending, RetryCount: 2}, published: true},
	} {
		t.Run(name, func(t *testing.T) {
			const page = 500
			run(t, Config{MaxInFlight: 10 * page}, func(b *bench) {
				for id := range 5 * page {
					b.SetRow(fmt.Sprint(id), pending)
				}
				odd := fmt.Sprint(2*page + 7)
				b.SetRow(odd, c.state)
				if c.missing {
					b.Change(func(rows flowtest.Table) { delete(rows, odd) })
				}
				b.Sink.Set(func() {
					b.Sink.Answer = func(m *outbox.Message) outbox.Outcome {
						if m.ID == odd {
							return outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"}
						}
						return outbox.Outcome{}
					}
				})
				b.connect(0, 9)
				sent := 0
				for n, want := range []struct{ lists, wholes int }{{1, 0}, {0, 1}, {1, 1}, {1, 0}, {0, 1}} {
					if n == 3 && c.published { // all of the page before was to be published: the next is asked for as a whole
						want.lists, want.wholes = 0, 1
					}
					b.OfferRows(flowtest.RowsFrom(n*page, page, 1)...)
					if lists, wholes := b.LookUps(); lists != want.lists || wholes != want.wholes {
						t.Errorf("page %d: asked %d times row by row and %d times as a whole, want %d and %d", n, lists, wholes, want.lists, want.wholes)
					}
					sent += page
					if n == 2 && !c.published {
						sent--
					}
					if got := len(b.Sink.IDs()); got != sent {
						t.Fatalf("page %d: %d rows were sent, want %d", n, got, sent)
					}
				}
				for _, done := range b.Acks.Take() {
					if refused := done.ID == odd; refused != (done.Action != outbox.ActionMarkSent) || refused && done.RetryCount != c.state.RetryCount {
						t.Errorf("completion %+v", done)
					}
				}
			})
		})
	}
}

// What the log says of a row's attempts is older than the table: the guard of a refusal is what the table shows.
func TestUntouchedRowsHaveNoAttempts(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.SetRow("1", outbox.Candidate{Status: outbox.Pending})
		b.SetRow("2", outbox.Candidate{Status: outbox.Pending})
		b.Sink.Set(func() { b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"}) })
		b.connect(0, 1)
		b.OfferRows(flowtest.Row(1))
		b.connect(1, 2)
		b.OfferRows(flowtest.Row(2, func(m *outbox.Message) { m.RetryCount = 3 }))
		if lists, wholes := b.LookUps(); lists != 1 || wholes != 1 {
			t.Fatalf("asked %d times row by row and %d times as a whole", lists, wholes)
		}
		for _, done := range b.Acks.Take() {
			if done.Action == outbox.ActionMarkSent || done.RetryCount != 0 {
				t.Errorf("completion %+v", done)
			}
		}
	})
}

// A producer that means "now" may write a time that is ahead of the database's clock. The process that was killed has published such a row at once: it is
// looked for among what was sent, and keeps its place before its successors. Rows that are delayed, or wait for a retry, wait on.
func TestARowThatIsMeantForNowIsNotLeftToTheSweep(t *testing.T) {
	slack := outbox.DueSlack.Milliseconds()
	waits := func(milli int64, attempts int) outbox.Candidate {
		return outbox.Candidate{Status: outbox.Pending, Waiting: true, DueInMilli: milli, RetryCount: attempts}
	}
	table := flowtest.Table{"0": waits(slack, 0), "1": waits(slack, 0), "2": waits(slack+1, 0), "3": waits(1, 1), "4": waits(1, 0), "5": {Status: outbox.Pending}}
	flowtest.RunAfter(t, Config{}, table, had{"0": true}, func(w *flowtest.World) {
		b := &bench{w}
		b.connect(0, 1)
		commit := time.Now()
		after := func(d time.Duration) func(*outbox.Message) {
			return func(m *outbox.Message) { m.DueAt = commit.Add(d) }
		}
		txn := b.Txn(flowtest.Row(0, after(outbox.DueSlack)), flowtest.Row(1, after(outbox.DueSlack)), flowtest.Row(2, after(outbox.DueSlack)), flowtest.Row(3),
			flowtest.Row(4, after(outbox.DueSlack+time.Millisecond)), flowtest.Row(5))
		txn.CommittedAt = commit
		if err := b.Offer(b.Ctx, txn); err != nil {
			t.Fatal(err)
		}
		b.WantSent("1", "5")
		b.WantCompletions("0 sent", "1 sent", "5 sent")
		if want := []time.Duration{outbox.DueSlack + time.Millisecond, time.Millisecond, time.Millisecond}; !slices.Equal(b.Asked, want) {
			t.Errorf("timers were asked for %v, want %v", b.Asked, want)
		}
	})
}
