package relay

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// movedState is a State that shows which server the gate accepts while the position is moved.
type movedState struct {
	State
	gate     *Gate
	accepted server.ID // by the gate, when Reset was called
	resets   int
}

func (s *movedState) Pause() *outbox.Pause { return nil }

func (s *movedState) Reset(server.ID, outbox.Position, uint64, string) error {
	s.resets++
	s.accepted = s.gate.Current()
	return nil
}

// While the position is still that of the old server, no connection of the sweep to the new server is accepted: a sweep in between
// would compare positions of two servers.
func TestG05_PositionMovesBeforeTheNewServerIsAccepted(t *testing.T) {
	const before, after = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
	old, next := server.ID{Flavor: outbox.MySQL, UUID: before, ServerID: 1}, server.ID{Flavor: outbox.MySQL, UUID: after, ServerID: 2}
	at := outbox.Position{File: "log.000001", Offset: 157, GTIDs: before + ":1-5"}
	gate := NewGate()
	gate.accept(old)
	state := &movedState{gate: gate}
	r := New(Parts{
		Gate: gate, State: state, Sink: shadow.NewSink(), Reader: func(canal.Handler) Reader { return nil },
	}, Settings{}, zap.NewNop(), prometheus.NewRegistry())
	testkit.Must(t, r.build(outbox.MySQL, at))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the pipeline does not run
	_ = r.handler.Connected(ctx, at, at, next, true)
	if state.resets != 1 || state.accepted != old {
		t.Errorf("%d moves of the position, while the gate accepted %v", state.resets, state.accepted)
	}
	if got := gate.Current(); got != next {
		t.Errorf("after the move the gate accepts %v", got)
	}
}
