package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// emptyState is the State of a directory that has none yet. It lists its changes.
type emptyState struct {
	State
	steps []string
}

func (s *emptyState) Source() (server.ID, bool)           { return server.ID{}, false }
func (s *emptyState) Checkpoint() (outbox.Position, bool) { return outbox.Position{}, false }
func (s *emptyState) Records() ([]uint64, error)          { return nil, nil }
func (s *emptyState) Pause() *outbox.Pause                { return nil }

func (s *emptyState) Reset(server.ID, outbox.Position, uint64, string) error {
	s.steps = append(s.steps, "position")
	return nil
}

func (s *emptyState) AddGap(gap outbox.Gap) (uint64, error) {
	s.steps = append(s.steps, "gap "+string(gap.Cause))
	return 1, nil
}

type fixedSource struct {
	Source
	id server.ID
	at outbox.Position
}

func (f fixedSource) Look(context.Context) (server.Info, outbox.Position, error) {
	return server.Info{ID: f.id}, f.at, nil
}

// A first start is recorded when the lease has its position: a relay that loses the lease before has read nothing and records none. The loss
// of an earlier state is recorded before anything else.
func TestA08_FirstStartIsRecordedWhenItBegins(t *testing.T) {
	source := fixedSource{
		id: server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 1},
		at: outbox.Position{File: "log.000001", Offset: 157},
	}
	for name, c := range map[string]struct {
		lost, ends bool // the earlier state; the lease
		want       []string
	}{
		"first start":                     {false, false, []string{"position", "lease", "gap first_start"}},
		"the lease is lost":               {false, true, []string{"position", "lease"}},
		"after a lost state":              {true, false, []string{"gap state", "position", "lease"}},
		"a lost state, the lease is lost": {true, true, []string{"gap state", "position", "lease"}},
	} {
		state := &emptyState{}
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := func(ctx context.Context) error {
			state.steps = append(state.steps, "lease")
			if c.ends {
				cancel(lease.ErrLost)
			}
			return ctx.Err()
		}
		r := New(Parts{
			Source: source, Gate: NewGate(), State: state, Sink: shadow.NewSink(), Lost: c.lost, Begin: begin,
			Reader: func(canal.Handler) Reader { return nil },
		}, Settings{}, zap.NewNop(), prometheus.NewRegistry())
		at, err := r.start(ctx)
		if !slices.Equal(state.steps, c.want) || (err != nil) != c.ends || err == nil && at != source.at {
			t.Errorf("%s: %q, from %v, %v; want %q", name, state.steps, at, err, c.want)
		}
		cancel(nil)
	}
}

// recordedState is the State of a directory that has worked on a server.
type recordedState struct {
	emptyState
	known server.ID
	at    outbox.Position
}

func (s *recordedState) Source() (server.ID, bool)           { return s.known, true }
func (s *recordedState) Checkpoint() (outbox.Position, bool) { return s.at, true }

// A11: the lease has a copy of the recorded server before the state has it, at a start and while the relay runs; a start tries again until then.
func TestA11_TheLeaseHasTheCopyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 1}
		source := fixedSource{
			id: server.ID{Flavor: outbox.MySQL, UUID: "4e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 2},
			at: outbox.Position{File: "log.000001", Offset: 157},
		}
		state := &recordedState{known: old, at: outbox.Position{File: "log.000009", Offset: 999}}
		away := 2 // times
		r := New(Parts{
			Source: source, Gate: NewGate(), State: state, Sink: shadow.NewSink(), Rows: &emptyTable{}, Reader: func(canal.Handler) Reader { return nil },
			Descends: func(context.Context, server.ID, outbox.Position, server.ID) (string, bool, error) {
				return "a copy", true, nil
			},
			Follow: func(_ context.Context, copied server.ID, at outbox.Position) error {
				if away--; away >= 0 {
					state.steps = append(state.steps, "no lease")
					return errNotFollowed
				}
				if copied != source.id || at != source.at {
					t.Errorf("the lease has %v at %v", copied, at)
				}
				state.steps = append(state.steps, "lease")
				return nil
			},
			Behind: func() func(context.Context) {
				return func(context.Context) { state.steps = append(state.steps, "count") }
			},
		}, Settings{}, zap.NewNop(), prometheus.NewRegistry())
		if at, err := r.start(t.Context()); err != nil || at != source.at {
			t.Fatalf("from %v, %v", at, err)
		}
		if want := []string{"no lease", "no lease", "lease", "gap failover", "position"}; !slices.Equal(state.steps, want) {
			t.Errorf("a start: %q, want %q", state.steps, want)
		}
		state.steps = nil
		if _, err := r.handler.Gap(t.Context(), outbox.Gap{Cause: outbox.GapFailover}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"lease", "gap failover", "position", "count"}; !slices.Equal(state.steps, want) {
			t.Errorf("while it runs: %q, want %q", state.steps, want)
		}
		state.steps, away = nil, 1
		if _, err := r.handler.Gap(t.Context(), outbox.Gap{Cause: outbox.GapFailover}); !errors.Is(err, errNotFollowed) {
			t.Errorf("without a lease: %v", err)
		}
		if want := []string{"no lease"}; !slices.Equal(state.steps, want) {
			t.Errorf("without a lease: %q, want %q", state.steps, want)
		}
	})
}
