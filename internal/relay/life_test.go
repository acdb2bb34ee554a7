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

	"github.com/canal-outbox/canal-outbox/outbox"
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
