package relay

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// sentBy is the list of the relays before: one row of each table.
type sentBy map[string]outbox.Identity

func (sentBy) Leave(context.Context, lease.SentRows) error { return nil }

func (sentBy) Forget(context.Context) error { return nil }

func (s sentBy) Left(_ context.Context, tables []string) (left lease.SentRows, err error) {
	for _, name := range tables {
		left.Rows = append(left.Rows, s[name])
	}
	return left, nil
}

// A standby that takes over has the rows in its journal that the relay before has sent and could not show as SENT: nothing sends them again.
func TestG32_TakeOverDoesNotSendRefusedRows(t *testing.T) {
	open := func() *checkpoint.Store {
		store, err := checkpoint.OpenContext(t.Context(), t.TempDir(), checkpoint.Options{})
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, store.Close()) })
		return store
	}
	store := open()
	refused := outbox.Identity{Table: "shop.t", ID: "17", MessageID: "order:17"}
	held := NewHeldLease(LeaseParts{State: store, Log: zap.NewNop(), Sent: sentBy{"shop.t": refused}})
	for range 2 { // an acquisition that fails later is repeated
		left, err := held.readSent(t.Context(), []string{"shop.t"})
		testkit.Must(t, err)
		testkit.Must(t, held.inheritSent(left))
	}
	journal, err := store.Journal()
	testkit.Must(t, err)
	if len(journal) != 1 || journal[0].Identity != refused || journal[0].Action != outbox.ActionMarkSent {
		t.Errorf("the journal is %+v", journal)
	}
}

// shownIn is the list as the lease shows it.
type shownIn struct {
	mu     sync.Mutex
	shown  lease.SentRows
	update chan struct{} // closed: updates pass
}

func (s *shownIn) Leave(ctx context.Context, sent lease.SentRows) error {
	select {
	case <-s.update:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = sent
	return nil
}

func (s *shownIn) Left(context.Context, []string) (lease.SentRows, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown, nil
}

func (s *shownIn) Forget(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.Life = nil
	return nil
}

// sign is the sign of life that the lease shows.
func (s *shownIn) sign() *outbox.Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.Life
}

// The lease shows the newest sign of life, also before the relay works, and none once rows were set back or the relay has ended in order. A database
// that does not answer delays no sign in the state directory.
func TestTheLeaseShowsSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := &shownIn{update: make(chan struct{})}
		held, own := NewHeldLease(LeaseParts{Sent: list, Log: zap.NewNop()}), &memory{}
		life := NewLife(LifeParts{Signs: own, Source: silent{}, Shared: held}, DefaultLife(time.Minute), zap.NewNop(), prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { held.ShareSent(ctx, &Relay{}) })
		running.Go(func() { life.Run(ctx, &Relay{}) })
		time.Sleep(time.Minute)
		if left, _, _ := own.Read(); time.Since(left.AliveAt) > 2*life.settings.Every {
			t.Errorf("next to a silent database the newest sign in the directory is %v old", time.Since(left.AliveAt))
		}
		close(list.update)
		time.Sleep(2 * shareSentIn)
		if list.sign() == nil {
			t.Error("the lease shows no sign of life")
		}
		err := life.SetBack(t.Context(), nil)
		if _, found, _ := own.Read(); err != nil || list.sign() != nil || found {
			t.Errorf("after rows were set back: %+v, %v", list.sign(), err)
		}
		time.Sleep(life.settings.Before + time.Minute)
		synctest.Wait()
		if list.sign() != nil {
			t.Error("what was sent before rows were set back is still within reach: there must be no sign of life")
		}
		life.mu.Lock()
		life.left.SettledAt = time.Now() // as if all were settled
		life.mu.Unlock()
		time.Sleep(2 * shareSentIn)
		if shown := list.sign(); shown == nil || time.Since(shown.AliveAt) > shareSentIn+2*life.settings.Every {
			t.Errorf("the lease shows %+v", shown)
		}
		cancel()
		running.Wait()
		held.Sign(nil)
		held.ShareLastSent(t.Context(), &Relay{})
		if list.sign() != nil {
			t.Error("after an end in order the lease shows a sign of life")
		}
	})
}

// A relay that takes over has the signs of life of the one before, in place of its own older ones, or none.
func TestTakeOverInheritsTheSignsOfLife(t *testing.T) {
	own := &memory{left: &outbox.Life{AliveAt: time.Unix(1, 0)}}
	held := NewHeldLease(LeaseParts{Signs: own, Log: zap.NewNop()})
	left := outbox.Life{SettledAt: time.Unix(8, 0), AliveAt: time.Unix(9, 0)}
	testkit.Must(t, held.inheritLife(&left))
	if own.left == nil || *own.left != left {
		t.Errorf("it has %+v", own.left)
	}
	testkit.Must(t, held.inheritLife(nil))
	if own.left != nil {
		t.Errorf("of a relay that has ended in order it has %+v", own.left)
	}
}
