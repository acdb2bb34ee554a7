package recovery_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// had are the rows, by id, that a killed process has sent.
type had map[string]bool

func (h had) Sent(_ context.Context, messages []*outbox.Message) []bool {
	sent := make([]bool, len(messages))
	for i, m := range messages {
		sent[i] = h[m.ID]
	}
	return sent
}

func (had) Ended() bool { return false }

func (had) Ready(context.Context) error { return nil }

// slow answers after a time.
type slow time.Duration

func (s slow) Sent(_ context.Context, messages []*outbox.Message) []bool {
	time.Sleep(time.Duration(s))
	return make([]bool, len(messages))
}

func (slow) Ended() bool { return false }

func (slow) Ready(context.Context) error { return nil }

// A sweep that would take later rows waits while topics are read back, however long that is: it would overtake the rows of the log that wait for it.
func TestNoSweepOvertakesRowsThatAreReadBack(t *testing.T) {
	table := flowtest.Table{"0": outbox.Candidate{Status: outbox.Pending}}
	flowtest.RunAfter(t, Config{}, table, slow(6*patience), func(w *flowtest.World) {
		b := &bench{w}
		b.connect(0, 2)
		b.OfferRows(flowtest.Row(0))
		answer := b.await(2)
		time.Sleep(6*patience - time.Second)
		b.wantAnswer("while topics are read back", answer, false)
		if b.raised(3) || len(b.Sink.IDs()) > 0 {
			t.Fatalf("raised: %v, sent %v", b.raised(3), b.Sink.IDs())
		}
		time.Sleep(patience - time.Second)
		b.wantAnswer("within patience of the last answer", answer, false)
		time.Sleep(3 * time.Second)
		b.wantAnswer("a reader that is down", answer, true)
		if got := b.Sink.IDs(); !slices.Equal(got, []string{"0"}) {
			t.Errorf("sent %v", got)
		}
	})
}

// away is a broker that has the row 0 and does not answer at first.
type away struct {
	had
	gone atomic.Bool
}

func (a *away) Ready(context.Context) error {
	if a.gone.Load() {
		return fmt.Errorf("%w: no broker answers", outbox.ErrBrokerAway)
	}
	return nil
}

// A broker that died with the process comes back later than the relay: rows wait for it, as long as that takes, and those that it has are not sent
// again. No sweep overtakes them, nothing is logged again and again, and an operator can set the position meanwhile.
func TestRowsWaitForABrokerThatComesBackLater(t *testing.T) {
	table := flowtest.Table{"0": outbox.Candidate{Status: outbox.Pending}, "1": outbox.Candidate{Status: outbox.Pending}}
	for name, end := range map[string]uint64{"the reader waits": 2, "the log shows nothing more": 3} {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprint(name, moved), func(t *testing.T) {
				broker := &away{had: had{"0": true}}
				broker.gone.Store(true)
				flowtest.RunAfter(t, Config{}, table, broker, func(w *flowtest.World) {
					b := &bench{w}
					b.connect(0, end)
					reading, cut := context.WithCancel(w.Ctx)
					read := make(chan error, 1)
					go func() {
						var err error
						for i := range 2 {
							txn := outbox.Txn{End: flowtest.End(uint64(i + 1)), Messages: []*outbox.Message{flowtest.Row(i)}}
							err = cmp.Or(err, w.Offer(reading, &txn))
						}
						read <- err
					}()
					answer := b.await(3)
					time.Sleep(time.Hour)
					b.wantAnswer("while the broker is away", answer, false)
					if b.raised(4) || len(b.Sink.IDs()) > 0 || b.Logs.Len() > 0 {
						t.Fatalf("raised: %v, sent %v, logged %v", b.raised(4), b.Sink.IDs(), b.Logs.All())
					}
					if moved {
						cut()
						<-read
						b.reset(9)
						broker.gone.Store(false)
						time.Sleep(time.Minute)
						if got := b.Sink.IDs(); len(got) > 0 {
							t.Errorf("sent %v", got)
						}
						return
					}
					broker.gone.Store(false)
					time.Sleep(6 * time.Second)
					if got := b.Sink.IDs(); !slices.Equal(got, []string{"1"}) || len(b.Acks.Take()) != 2 {
						t.Errorf("sent %v", got)
					}
					cut()
					<-read
				})
			})
		}
	}
}

// A sweep waits for it too, and a stop ends that.
func TestASweepWaitsForABrokerThatComesBackLater(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		broker := &away{had: had{"0": true}}
		broker.gone.Store(true)
		flowtest.RunAfter(t, Config{}, flowtest.Table{}, broker, func(w *flowtest.World) {
			ctx, stop := context.WithCancel(w.Ctx)
			time.AfterFunc(time.Hour, func() {
				if stopped {
					stop()
				}
				broker.gone.Store(false)
			})
			defer stop()
			m := flowtest.Row(0)
			free, _ := w.Reserve([]outbox.Candidate{{Identity: m.Identity, Status: outbox.Sending}})
			m.Entry, m.Status, m.Path, m.Claim = free[0].Entry, outbox.Sending, outbox.PathSweep, "ours"
			began := time.Now()
			taken, err := w.Publish(ctx, []*outbox.Message{m}, nil)
			if errors.Is(err, context.Canceled) != stopped || (taken == 1) == stopped || time.Since(began) < time.Hour || len(w.Sink.IDs()) > 0 {
				t.Errorf("%d taken, %v, after %v, sent %v", taken, err, time.Since(began), w.Sink.IDs())
			}
		})
	}
}

// Rows of the window that a killed process has sent are completed as sent and not handed over; the others are sent in their order. A row that
// comes after the window is not asked about.
func TestRowsThatAKilledProcessHasSent(t *testing.T) {
	for name, cfg := range map[string]Config{"any order": {}, "by key": {Ordered: []string{"shop.t"}}} {
		t.Run(name, func(t *testing.T) {
			table := flowtest.Table{}
			for id := range 5 {
				table[fmt.Sprint(id)] = outbox.Candidate{Status: outbox.Pending}
			}
			flowtest.RunAfter(t, cfg, table, had{"1": true, "2": true, "4": true}, func(w *flowtest.World) {
				b := &bench{w}
				b.connect(0, 1)
				b.OfferRows(flowtest.RowsFrom(0, 4, 1)...)
				b.OfferRows(flowtest.Row(4))
				if got := b.Sink.IDs(); !slices.Equal(got, []string{"0", "3", "4"}) {
					t.Errorf("sent %v", got)
				}
				var done []string
				for _, c := range b.Acks.Take() {
					if c.Action != outbox.ActionMarkSent || c.Entry == nil {
						t.Errorf("completion %+v", c)
					}
					done = append(done, c.ID)
				}
				slices.Sort(done)
				if !slices.Equal(done, []string{"0", "1", "2", "3", "4"}) {
					t.Errorf("completed %v", done)
				}
			})
		})
	}
}

// Of the rows of a sweep only those are asked about whose claims were taken over, and those that no status update has touched: another row that is
// PENDING may have been set back by a person.
func TestClaimsOfAKilledProcess(t *testing.T) {
	flowtest.RunAfter(t, Config{}, flowtest.Table{}, had{"1": true, "2": true, "3": true, "5": true}, func(w *flowtest.World) {
		var candidates []outbox.Candidate
		status := map[string]outbox.Status{"0": outbox.Sending, "1": outbox.Pending, "2": outbox.Sending, "3": outbox.Sending, "4": outbox.Pending, "5": outbox.Pending}
		rows := flowtest.RowsFrom(0, 6, 1)
		for _, m := range rows {
			candidates = append(candidates, outbox.Candidate{Identity: m.Identity, Status: status[m.ID]})
		}
		free, _ := w.Reserve(candidates)
		for i, m := range rows {
			m.Entry, m.Status, m.Path, m.Claim = free[i].Entry, status[m.ID], outbox.PathSweep, "ours"
			m.Untouched = m.ID == "5"
		}
		taken, err := w.Publish(w.Ctx, rows, nil)
		if err != nil || taken != len(rows) {
			t.Fatalf("%d taken, %v", taken, err)
		}
		synctest.Wait()
		if got := w.Sink.IDs(); !slices.Equal(got, []string{"0", "1", "4"}) {
			t.Errorf("sent %v", got)
		}
		done := w.Acks.Take()
		for _, c := range done {
			if c.Action != outbox.ActionMarkSent || c.Claim != "ours" || c.TakenOver != (status[c.ID] == outbox.Sending) {
				t.Errorf("completion %+v", c)
			}
		}
		if len(done) != len(rows) {
			t.Errorf("%d completions", len(done))
		}
	})
}

// stopping is a look into the topics that a stop interrupts.
type stopping struct {
	stop  func()
	ended bool
}

func (s stopping) Ended() bool { return s.ended }

func (stopping) Ready(context.Context) error { return nil }

func (s stopping) Sent(_ context.Context, messages []*outbox.Message) []bool {
	s.stop()
	return make([]bool, len(messages))
}

// A stop while the topics are read sends nothing: the next start asks again.
func TestAStopWhileTopicsAreRead(t *testing.T) {
	s := &stopping{}
	flowtest.RunAfter(t, Config{}, flowtest.Table{"0": {Status: outbox.Pending}}, s, func(w *flowtest.World) {
		ctx, stop := context.WithCancel(w.Ctx)
		s.stop = stop
		b := &bench{w}
		b.connect(0, 1)
		txn := outbox.Txn{End: flowtest.End(1), Messages: []*outbox.Message{flowtest.Row(0)}}
		if err := w.Offer(ctx, &txn); !errors.Is(err, context.Canceled) {
			t.Errorf("offered: %v", err)
		}
		synctest.Wait()
		if got := w.Sink.IDs(); len(got) != 0 {
			t.Errorf("sent %v", got)
		}
	})
}

// The same in a sweep. The rows of which is not known whether they were sent keep their claims, which the next start takes over and asks about:
// released, they would look like any other row. When no process can have sent them, all are released.
func TestAStopWhileTopicsAreReadForASweep(t *testing.T) {
	for _, ended := range []bool{false, true} {
		s := &stopping{ended: ended}
		flowtest.RunAfter(t, Config{}, flowtest.Table{}, s, func(w *flowtest.World) {
			ctx, stop := context.WithCancel(w.Ctx)
			s.stop = stop
			rows := flowtest.RowsFrom(0, 3, 1)
			candidates := []outbox.Candidate{{Status: outbox.Sending}, {Status: outbox.Pending}, {Status: outbox.Pending, Untouched: true}}
			for i, m := range rows {
				candidates[i].Identity = m.Identity
			}
			free, _ := w.Reserve(candidates)
			for i, m := range rows {
				m.Entry, m.Status, m.Untouched, m.Path, m.Claim = free[i].Entry, free[i].Status, free[i].Untouched, outbox.PathSweep, "ours"
			}
			if taken, err := w.Publish(ctx, rows, nil); taken != 0 || !errors.Is(err, context.Canceled) {
				t.Fatalf("%d taken, %v", taken, err)
			}
			w.Return(free, "ours")
			synctest.Wait()
			var released []string
			for _, c := range w.Acks.Take() {
				if c.Action == outbox.ActionRelease {
					released = append(released, c.ID)
				}
			}
			want := []string{"1"}
			if ended {
				want = []string{"0", "1", "2"}
			}
			if got := w.Sink.IDs(); len(got) != 0 || !slices.Equal(released, want) {
				t.Errorf("sent %v, released %v", got, released)
			}
			if again, _ := w.Reserve(candidates[:1]); len(again) != 1 && !ended {
				t.Error("a row that keeps its claim has an owner")
			}
		})
	}
}
