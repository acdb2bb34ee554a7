package operator

import (
	"context"
	"errors"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

var here = server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 1}

// memory is a state directory whose checkpoint is in the first file of the log.
type memory struct {
	State
	gaps  []outbox.Gap
	acked []uint64
}

func (*memory) Checkpoint() (outbox.Position, bool) {
	return outbox.Position{File: "b.000001", Offset: 100}, true
}
func (*memory) Source() (server.ID, bool)              { return here, true }
func (*memory) History() ([]admin.HistoryEntry, error) { return nil, nil }
func (m *memory) AddGap(g outbox.Gap) (uint64, error) {
	m.gaps = append(m.gaps, g)
	return uint64(len(m.gaps)), nil
}

func (m *memory) AckGap(id uint64) (bool, error) {
	m.acked = append(m.acked, id)
	return true, nil
}

// oneFile is a server whose log is one file of 1000 bytes.
type oneFile struct{ Server }

func (oneFile) Look(context.Context) (server.Info, outbox.Position, error) {
	return server.Info{ID: here}, outbox.Position{File: "b.000001", Offset: 1000}, nil
}
func (oneFile) HasFile(context.Context, outbox.Position) (bool, error) { return true, nil }
func (oneFile) Files(context.Context) ([]server.File, error) {
	return []server.File{{Name: "b.000001", Size: 1000}}, nil
}

// A gap says that a part of the log was skipped. A move that was not taken skips nothing.
func TestGapOfAMoveIsRecordedWhenTheMoveIsTaken(t *testing.T) {
	state := &memory{}
	o := &Operator{State: state, Ask: oneFile{}}
	o.Move = func(context.Context, server.ID, outbox.Position, string) error { return errors.New("not now") }
	if _, err := o.SetCheckpoint(t.Context(), admin.Target{Latest: true}); err == nil || len(state.gaps) != 0 {
		t.Errorf("a move that failed: %v, gaps %+v", err, state.gaps)
	}
	o.Move = func(context.Context, server.ID, outbox.Position, string) error {
		if len(state.gaps) != 0 {
			t.Error("the gap was recorded before the move")
		}
		return nil
	}
	p, err := o.SetCheckpoint(t.Context(), admin.Target{Latest: true})
	if err != nil || !p.Applied || len(state.gaps) != 1 || state.gaps[0].To.Offset != 1000 || len(state.acked) != 1 {
		t.Errorf("a move that was taken: %+v, %v, gaps %+v", p, err, state.gaps)
	}
}
