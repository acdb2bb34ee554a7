package relay

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// memory is Signs in memory.
type memory struct{ left *outbox.Life }

func (m *memory) Read() (outbox.Life, bool, error) {
	if m.left == nil {
		return outbox.Life{}, false, nil
	}
	return *m.left, true, nil
}

func (m *memory) Write(l outbox.Life) error { m.left = &l; return nil }
func (m *memory) Remove() error             { m.left = nil; return nil }

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
	if err := l.SetBack(); err != nil {
		t.Fatal(err)
	}
	has(false)
	l.left.SettledAt = time.Now().Add(l.settings.Before / 2)
	l.leave(time.Now())
	has(false)
	l.left.SettledAt = time.Now().Add(l.settings.Before + time.Second)
	l.leave(time.Now())
	has(true)
	if err := (*Life)(nil).SetBack(); err != nil {
		t.Error(err)
	}
}
