package app

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
)

// A row that a person sets back is to be sent again though its topic has it: no start after a kill takes it for sent, until all that was sent
// before is out of reach.
func TestNoSignOfLifeAfterRowsWereSetBack(t *testing.T) {
	began := time.Now()
	l := &life{dir: t.TempDir(), log: zap.NewNop(), left: checkpoint.Life{SettledAt: began}}
	has := func(want bool) {
		t.Helper()
		if _, found, err := checkpoint.ReadLife(l.dir); found != want || err != nil {
			t.Errorf("a sign of life: %v, %v", found, err)
		}
	}
	l.leave(began)
	has(true)
	if err := l.setBack(); err != nil {
		t.Fatal(err)
	}
	has(false)
	l.left.SettledAt = time.Now().Add(beforeSettled / 2)
	l.leave(time.Now())
	has(false)
	l.left.SettledAt = time.Now().Add(beforeSettled + time.Second)
	l.leave(time.Now())
	has(true)
	if err := (*life)(nil).setBack(); err != nil {
		t.Error(err)
	}
}
