package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

var here = server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 1}

// memory is a state directory whose checkpoint is in the first file of the log.
type memory struct {
	State
	gaps    []outbox.Gap
	acked   []uint64
	journal []outbox.Completion
	history []HistoryEntry
}

func (*memory) Checkpoint() (outbox.Position, bool) {
	return outbox.Position{File: "b.000001", Offset: 100}, true
}
func (*memory) Source() (server.ID, bool)          { return here, true }
func (m *memory) History() ([]HistoryEntry, error) { return m.history, nil }
func (m *memory) Journalled() int                  { return len(m.journal) }

func (m *memory) SentRow(id outbox.Identity) (row outbox.Completion, found bool, err error) {
	i := slices.IndexFunc(m.journal, func(c outbox.Completion) bool { return c.Identity == id })
	if i < 0 {
		return row, false, nil
	}
	return m.journal[i], true, nil
}

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

func (oneFile) Boundaries(ctx context.Context, at outbox.Position) (before, after outbox.Position, err error) {
	if _, bounded := ctx.Deadline(); !bounded {
		return before, after, errors.New("the look is not bounded")
	}
	for _, end := range []uint64{4, 100, 400, 900} {
		p := outbox.Position{File: at.File, Offset: end}
		if end <= at.Offset {
			before = p
		}
		if end >= at.Offset && after.IsZero() {
			after = p
		}
	}
	return before, after, nil
}

// A place inside a transaction is refused, also for a look, with the places that are meant.
func TestAPlaceInsideATransactionIsRefused(t *testing.T) {
	o := &Operator{Tables: newRows().tables, Record: func(*Change) error { return nil }, State: &memory{}, Ask: oneFile{}, Move: func(context.Context, server.ID, outbox.Position, string) error {
		t.Error("it was moved")
		return nil
	}}
	for pos, want := range map[uint64][]string{
		99:  {"b.000001:4,", "b.000001:100;", "--pos 4`", "--pos 100`"},
		401: {"b.000001:400,", "b.000001:900;", "--file b.000001 --pos 400`", "--file b.000001 --pos 900`"},
		950: {"b.000001:900,", "no later end", "--pos 900`", "--latest"},
	} {
		for _, dry := range []bool{true, false} {
			_, err := o.SetCheckpoint(t.Context(), Target{File: "b.000001", Pos: pos, DryRun: dry})
			var coded *Error
			if !errors.As(err, &coded) || coded.Code != CodeRefused {
				t.Fatalf("%d: %v", pos, err)
			}
			for _, word := range want {
				if !strings.Contains(coded.Message, word) {
					t.Errorf("%d: %q is not in %q", pos, word, coded.Message)
				}
			}
		}
	}
	if p, err := o.SetCheckpoint(t.Context(), Target{File: "b.000001", Pos: 400, DryRun: true}); err != nil || p.To.Offset != 400 {
		t.Errorf("the end of a transaction: %+v, %v", p, err)
	}
}

// A gap says that a part of the log was skipped. A move that was not taken skips nothing.
func TestGapOfAMoveIsRecordedWhenTheMoveIsTaken(t *testing.T) {
	state := &memory{}
	o := &Operator{Tables: newRows().tables, Record: func(*Change) error { return nil }, State: state, Ask: oneFile{}}
	o.Move = func(context.Context, server.ID, outbox.Position, string) error { return errors.New("not now") }
	if _, err := o.SetCheckpoint(t.Context(), Target{Latest: true}); err == nil || len(state.gaps) != 0 {
		t.Errorf("a move that failed: %v, gaps %+v", err, state.gaps)
	}
	o.Move = func(context.Context, server.ID, outbox.Position, string) error {
		if len(state.gaps) != 0 {
			t.Error("the gap was recorded before the move")
		}
		return nil
	}
	p, err := o.SetCheckpoint(t.Context(), Target{Latest: true})
	if err != nil || !p.Applied || len(state.gaps) != 1 || state.gaps[0].To.Offset != 1000 || len(state.acked) != 1 {
		t.Errorf("a move that was taken: %+v, %v, gaps %+v", p, err, state.gaps)
	}
}
