package relay

import (
	"context"
	"slices"
	"testing"

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

func (s *emptyState) Source() (server.ID, bool)             { return server.ID{}, false }
func (s *emptyState) Checkpoint() (outbox.Position, bool)   { return outbox.Position{}, false }
func (s *emptyState) Journal() ([]outbox.Completion, error) { return nil, nil }
func (s *emptyState) Pause() *outbox.Pause                  { return nil }

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
