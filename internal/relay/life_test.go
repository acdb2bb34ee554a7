package relay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/dispatch"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// memory is Signs in memory.
type memory struct {
	mu   sync.Mutex
	left *outbox.Life
}

func (m *memory) Read() (outbox.Life, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == nil {
		return outbox.Life{}, false, nil
	}
	return *m.left, true, nil
}

func (m *memory) Write(l outbox.Life) error { return m.set(&l) }
func (m *memory) Remove() error             { return m.set(nil) }

func (m *memory) set(l *outbox.Life) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = l
	return nil
}

// A row that a person sets back is to be sent again though its topic has it: no start after a kill takes it for sent, until all that was sent
// before is out of reach.
func TestNoSignOfLifeAfterRowsWereSetBack(t *testing.T) {
	began, signs := time.Now(), &memory{}
	l := &Life{parts: LifeParts{Signs: signs}, settings: DefaultLife(time.Minute), log: zap.NewNop(), left: outbox.Life{SettledAt: began}}
	has := func(want bool) {
		t.Helper()
		if found := signs.left != nil; found != want {
			t.Errorf("a sign of life: %v", found)
		}
	}
	l.leave(began)
	has(true)
	if err := l.SetBack(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	has(false)
	l.left.SettledAt = time.Now().Add(l.settings.Before / 2)
	l.leave(time.Now())
	has(false)
	l.left.SettledAt = time.Now().Add(l.settings.Before + time.Second)
	l.leave(time.Now())
	has(true)
	if err := (*Life)(nil).SetBack(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// The claim of a killed process remains for a while, in which others may come and be killed or stopped: what it covers is in reach of each of them.
func TestClaimsOutliveTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		at := func(d time.Duration) time.Time { return began.Add(d) }
		start := func(before outbox.Life) (*Life, *memory) {
			signs := &memory{left: &before}
			return NewLife(LifeParts{Signs: signs}, DefaultLife(time.Minute), zap.NewNop(), prometheus.NewRegistry()), signs
		}
		for before, want := range map[outbox.Life]time.Time{
			{ClaimsAt: at(-20 * time.Second), SettledAt: at(-2 * time.Second), AliveAt: began}: at(-20 * time.Second),
			{ClaimsAt: at(-time.Hour), SettledAt: at(-2 * time.Second), AliveAt: began}:        at(-time.Hour),     // no sweep has come since
			{ClaimsAt: at(-time.Hour), SettledAt: at(-2 * time.Hour), AliveAt: began}:          at(-2 * time.Hour), // a sign that is not ours
		} {
			if l, _ := start(before); !l.left.ClaimsAt.Equal(want) {
				t.Errorf("after %+v: claims since %s", before, l.left.ClaimsAt)
			}
		}
		l, signs := start(outbox.Life{ClaimsAt: at(-20 * time.Second), SettledAt: at(-2 * time.Second), AliveAt: began})
		l.past, l.left.SettledAt = true, at(time.Second)
		r, _, _ := withJournal(t, nil)
		if err := l.End(r); err != nil || signs.left == nil {
			t.Errorf("a stop while claims stand leaves no sign of life: %v", err)
		}
		swept := &Relay{active: true, Stations: Stations{Flow: r.Flow, Sweeper: fallback.New(fallback.Config{}, r.triggers, r.Flow, nil, nil, zap.NewNop(), prometheus.NewRegistry())}}
		r.active = true
		remains := func(r *Relay) {
			t.Helper()
			if l.step(time.Now(), r); !l.left.ClaimsAt.Equal(at(-20 * time.Second)) {
				t.Fatalf("%s after the start: claims since %s", time.Since(began), l.left.ClaimsAt)
			}
		}
		for range 10 {
			time.Sleep(l.settings.Claims / 10)
			remains(swept)
		}
		time.Sleep(time.Second)
		remains(r) // its table was not swept
		l.left.SettledAt = time.Now()
		if l.step(time.Now(), swept); !l.left.ClaimsAt.Equal(l.left.SettledAt.Add(-l.settings.After)) {
			t.Errorf("when the claims have expired: claims since %s", l.left.ClaimsAt)
		}
		l.setBackAt = l.left.SettledAt.Add(-l.settings.Before)
		if l.leave(time.Now()); !signs.left.ClaimsAt.Equal(l.left.SettledAt) {
			t.Errorf("rows that were set back are within reach: claims since %s", signs.left.ClaimsAt)
		}
	})
}

// A row of a sweep may wait for its answer for longer than any time: its first send is within reach of the next start, also after a clean stop.
func TestARowOfASweepWithoutAnAnswerIsWithinReach(t *testing.T) {
	flowtest.Run(t, dispatch.Config{}, flowtest.Table{}, func(w *flowtest.World) {
		signs := &memory{}
		at := func() (outbox.Position, bool) { return w.Snapshot().Offered, true }
		l := NewLife(LifeParts{Signs: signs, Checkpoint: at}, DefaultLife(time.Minute), zap.NewNop(), prometheus.NewRegistry())
		r := &Relay{active: true, Stations: Stations{Flow: w.Pipeline, Sweeper: fallback.New(fallback.Config{}, nil, w.Pipeline, nil, nil, zap.NewNop(), prometheus.NewRegistry())}}
		w.Sink.Set(func() { w.Sink.Answer = nil })
		row := flowtest.Row(1, func(m *outbox.Message) { m.Claim = "token" })
		sent := time.Now()
		if err := w.PublishRows(w.Ctx, row); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		step := func(want time.Time) {
			t.Helper()
			l.past, l.left.SettledAt = true, time.Now()
			if l.step(time.Now(), r); !signs.left.ClaimsAt.Equal(want) {
				t.Errorf("after %v: claims since %v", time.Since(sent), signs.left.ClaimsAt.Sub(sent))
			}
		}
		step(sent)
		if err := l.End(r); err != nil || signs.left == nil {
			t.Errorf("a stop without the answer leaves no sign: %v", err)
		}
		w.Answer(outbox.Outcome{}, row)
		step(time.Now().Add(-l.settings.After))
		if err := l.End(r); err != nil || signs.left != nil {
			t.Errorf("a stop with the answer leaves the sign %+v, %v", signs.left, err)
		}
	})
}

// A process that lives for a short time and stops cleanly leaves a sign of life only if one was there: then rows of a killed process may not be settled. Without
// one the next start would read topics back for nothing.
func TestAShortLifeLeavesNoSign(t *testing.T) {
	r, _, _ := withJournal(t, nil)
	at := func() (outbox.Position, bool) { return r.Flow.Snapshot().Offered, true }
	for found, before := range map[bool]*outbox.Life{false: nil, true: {SettledAt: time.Now(), AliveAt: time.Now()}} {
		signs := &memory{left: before}
		l := NewLife(LifeParts{Signs: signs, Checkpoint: at}, DefaultLife(time.Minute), zap.NewNop(), prometheus.NewRegistry())
		if signs.left == nil {
			t.Fatal("a start leaves no sign")
		}
		if err := l.End(&Relay{}); err != nil || signs.left == nil {
			t.Errorf("a stop before the start is over leaves no sign: %v", err)
		}
		if err := l.End(r); err != nil || (signs.left != nil) != found {
			t.Errorf("after a start that found a sign (%v): %+v %v", found, signs.left, err)
		}
	}
}

// silent is a database that answers no question for the end of its log.
type silent struct{}

func (silent) End(ctx context.Context) (outbox.Position, error) {
	<-ctx.Done()
	return outbox.Position{}, ctx.Err()
}

// A server that is silent delays no sign of life: a start after a kill would look for what was sent in too short a period.
func TestSignsOfLifeBesideASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signs := &memory{}
		l := NewLife(LifeParts{Signs: signs, Source: silent{}}, DefaultLife(time.Minute), zap.NewNop(), prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx, &Relay{})
		}()
		for range 100 {
			time.Sleep(l.settings.Every)
			synctest.Wait()
			if left, _, _ := signs.Read(); time.Since(left.AliveAt) > 2*l.settings.Every {
				t.Fatalf("the newest sign of life is %s old", time.Since(left.AliveAt))
			}
		}
		cancel()
		<-done
	})
}

// Before the start is over the journal may just be written to the tables: rows are not set back then.
func TestNoRowIsSetBackBeforeTheStartIsOver(t *testing.T) {
	if free, err := new(Relay).SetBack(t.Context(), []outbox.Identity{{ID: "1"}}); !errors.Is(err, ErrNotRunning) || len(free) > 0 {
		t.Errorf("%v, %v", free, err)
	}
}
