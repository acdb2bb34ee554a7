package recovery_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
	"github.com/canal-outbox/canal-outbox/sink"
)

const patience = 10 * time.Second

// await asks for the log up to a position, as a sweep does for each page, and returns where the answer will come.
func (b *bench) await(to uint64) <-chan error {
	ctx, cancel := context.WithCancel(b.Ctx)
	b.T.Cleanup(cancel)
	answer := make(chan error, 1)
	go func() { answer <- b.Recovery.AwaitLog(ctx, b.logEnd(to), patience) }()
	synctest.Wait()
	return answer
}

// raised reports whether the recovery window covers a transaction.
func (b *bench) raised(to uint64) bool { return b.Recovery.Covers(flowtest.End(to)) }

func (b *bench) wantAnswer(what string, answer <-chan error, come bool) {
	b.T.Helper()
	synctest.Wait()
	select {
	case err := <-answer:
		if !come || err != nil {
			b.T.Fatalf("%s: the sweep continues (%v)", what, err)
		}
	default:
		if come {
			b.T.Fatalf("%s: the sweep still waits", what)
		}
	}
}

// logEnd is what the server shows as the end of the log now.
func (b *bench) logEnd(to uint64) outbox.LogEnd {
	return outbox.LogEnd{Position: flowtest.End(to), Generation: b.Tracker.Generation()}
}

// D01: the reader is five minutes behind and advances: the sweep leaves its rows to it.
func TestD01_NothingIsPublishedWhileTheReaderIsMerelySlow(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		answer := b.await(300)
		for range 299 {
			time.Sleep(time.Second)
			b.OfferRows()
		}
		b.wantAnswer("while the reader is behind", answer, false)
		b.OfferRows()
		b.wantAnswer("when it has passed the rows", answer, true)
		if b.raised(1) {
			t.Error("the window was raised")
		}
	})
}

func TestReaderDownRaisesTheWindow(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		answer := b.await(10)
		time.Sleep(patience - time.Second)
		b.wantAnswer("within patience", answer, false)
		time.Sleep(2 * time.Second)
		b.wantAnswer("after patience", answer, true)
		if !b.raised(10) || b.raised(11) {
			t.Errorf("the window covers 10: %v, 11: %v", b.raised(10), b.raised(11))
		}
		// The reader read the end of the log before the sweep did, and connects only now.
		b.connect(0, 5)
		if !b.raised(10) || b.raised(11) {
			t.Errorf("after a slow connect the window covers 10: %v, 11: %v", b.raised(10), b.raised(11))
		}
	})
}

// A reader that is down is waited for once and not for each page; when it moves it is trusted again.
func TestPatienceIsSpentOnceForAllPages(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		answer := b.await(10)
		time.Sleep(patience + time.Second)
		b.wantAnswer("the first page", answer, true)
		for page := range uint64(5) {
			b.wantAnswer("a later page", b.await(20+page), true)
		}
		if n := b.Logs.FilterMessageSnippet("without it").Len(); n != 1 {
			t.Errorf("logged %d times", n)
		}
		b.OfferRows()
		answer = b.await(30)
		time.Sleep(patience - time.Second)
		b.wantAnswer("a reader that moved", answer, false)
	})
}

func TestBackPressureCountsAsAdvancing(t *testing.T) {
	run(t, Config{MaxInFlight: 1}, func(b *bench) {
		b.OfferRows() // as in a run that has begun
		full := flowtest.Row(1)
		b.Sink.Set(func() { b.Sink.Answer = nil })
		b.OfferRows(full)
		answer := b.await(10)
		for range 3 { // the broker is slow, and not silent
			time.Sleep(4 * time.Second)
			b.Answer(outbox.Outcome{}, full)
			full = flowtest.Row(int(time.Now().Unix()))
			b.Next-- // the reader gets no further
			b.OfferRows(full)
		}
		b.wantAnswer("while the reader waits for room", answer, false)
		b.Answer(outbox.Outcome{}, full)
		time.Sleep(patience - 2*time.Second)
		b.wantAnswer("within patience of the last back-pressure", answer, false)
		time.Sleep(4 * time.Second)
		b.wantAnswer("after patience", answer, true)
	})
}

func TestBreakerOpensWhileTheSweepWaitsForTheReader(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		answer := b.await(10)
		b.Sink.Set(func() { b.Sink.Down, b.Sink.Answer = true, nil })
		b.OfferRows(flowtest.Row(1))
		time.Sleep(7 * time.Second)
		synctest.Wait()
		select {
		case err := <-answer:
			if !errors.Is(err, outbox.ErrBrokerAway) {
				t.Errorf("the sweep got %v", err)
			}
		default:
			t.Error("the sweep still waits")
		}
		if err := b.Recovery.AwaitLog(b.Ctx, b.logEnd(1), patience); !errors.Is(err, outbox.ErrBrokerAway) {
			t.Errorf("the next page: %v", err)
		}
	})
}

// Who may not publish claims nothing: another relay would wait until the claim has expired.
func TestNothingIsTakenWithoutTheLease(t *testing.T) {
	var may atomic.Bool
	run(t, Config{May: may.Load}, func(b *bench) {
		if err := b.Recovery.AwaitLog(b.Ctx, b.logEnd(0), patience); !errors.Is(err, sink.ErrMayNot) {
			t.Errorf("the sweep got %v", err)
		}
		if _, err := b.Recovery.Shown(b.logEnd(0)); !errors.Is(err, sink.ErrMayNot) {
			t.Errorf("rows that are due: %v", err)
		}
		may.Store(true)
		if err := b.Recovery.AwaitLog(b.Ctx, b.logEnd(0), patience); err != nil {
			t.Errorf("with the lease again: %v", err)
		}
	})
}

// Rows that become due do not wait for a reader that looks rows up anyway, after a start: it looks up those before them, too. For any
// other reader they wait.
func TestRowsThatAreDueWhileTheReaderIsInTheWindow(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		shown := func(to uint64, want bool) {
			t.Helper()
			if got, err := b.Recovery.Shown(b.logEnd(to)); err != nil || got != want {
				t.Errorf("up to %d: %v, %v; want %v", to, got, err, want)
			}
		}
		b.connect(0, 3)
		b.OfferRows()
		shown(1, true)
		shown(3, true)
		if b.raised(4) {
			t.Fatal("the window was raised without need")
		}
		shown(5, true)
		if !b.raised(5) {
			t.Fatal("rows are published that the reader would publish again")
		}
		for range 4 {
			b.OfferRows()
		}
		shown(5, true)
		shown(6, false)
		if b.raised(6) {
			t.Error("the window was raised for a reader that is merely behind")
		}
	})
}

// The log of a server that took over may never reach the end that the old server had: what was read before the move raises nothing after it.
func TestEndThatWasReadBeforeAMoveRaisesNothing(t *testing.T) {
	runOrdered(t, Config{}, func(b *bench) {
		for range 9 {
			b.OfferRows()
		}
		old, waiting := b.logEnd(10), b.await(10)
		time.Sleep(patience - time.Second)
		b.reset(1)
		synctest.Wait()
		select {
		case err := <-waiting:
			if !errors.Is(err, outbox.ErrMoved) {
				t.Errorf("the sweep that waited got %v", err)
			}
		default:
			t.Error("the sweep still waits")
		}
		answer := b.await(3) // a sweep that begins after the move has all of its patience
		time.Sleep(patience - time.Second)
		b.wantAnswer("after the move", answer, false)
		if err := b.Recovery.AwaitLog(b.Ctx, old, patience); !errors.Is(err, outbox.ErrMoved) {
			t.Errorf("a page that was read before: %v", err)
		}
		if _, err := b.Recovery.Shown(old); !errors.Is(err, outbox.ErrMoved) {
			t.Errorf("rows that were seen before: %v", err)
		}
		b.OfferRows()
		b.OfferRows()
		b.wantAnswer("when the reader has come", answer, true)
		if b.raised(1) {
			t.Error("the window was raised")
		}
		b.SetRow("1", outbox.Candidate{Status: outbox.Pending})
		if alone := b.Sweep(flowtest.Row(1, flowtest.Key("a"))); len(alone) > 0 { // the gate waits for no end of the old log
			t.Errorf("the sweep leaves %v alone", alone)
		}
		b.WantSent("1")
	})
}
