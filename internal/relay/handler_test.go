package relay

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// slowReader needs some seconds to look at the server of each attempt, and waits long between two of them.
type slowReader struct {
	handler *handler
	answers func() server.ID
	woken   chan struct{}
	runs    atomic.Int32
}

func (s *slowReader) LookAgain() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *slowReader) Run(ctx context.Context, from outbox.Position) error {
	s.runs.Add(1)
	for outbox.Wait(ctx, 3*time.Second, nil) {
		if now := s.answers(); now != s.handler.relay.parts.Gate.Current() {
			err := s.handler.Connected(ctx, from, from, now, true)
			if err == nil {
				<-ctx.Done()
				s.handler.Disconnected(ctx.Err())
			}
			return err
		}
		if !outbox.Wait(ctx, time.Hour, s.woken) {
			break
		}
	}
	return nil
}

// A11: a connection to the tables that is refused ends a stream, and the wait for one. It does not end a look at the server: callers that are refused all
// the time would keep the relay from following.
func TestA11_RefusedConnectionsDoNotInterruptALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := []server.ID{{Flavor: outbox.MySQL, UUID: "first"}, {Flavor: outbox.MySQL, UUID: "second"}, {Flavor: outbox.MySQL, UUID: "third"}}
		at := outbox.Position{File: "log.000001", Offset: 157, GTIDs: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"}
		gate := NewGate()
		gate.accept(ids[0])
		var present atomic.Int32 // index into ids
		reader := &slowReader{answers: func() server.ID { return ids[present.Load()] }, woken: make(chan struct{}, 1)}
		r := New(Parts{Gate: gate, State: &movedState{gate: gate}, Sink: shadow.NewSink(), Reader: func(h canal.Handler) Reader {
			reader.handler, _ = h.(*handler)
			return reader
		}}, Settings{}, zap.NewNop(), prometheus.NewRegistry())
		testkit.Must(t, r.build(outbox.MySQL, at))
		r.active = true
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go func() { _ = r.Flow.Run(ctx) }()
		go func() { _ = r.read(ctx, at) }()
		time.Sleep(time.Minute) // it waits for the next attempt
		for n, id := range ids[1:] {
			present.Store(int32(n + 1))
			began := time.Now()
			for range 600 {
				_ = gate.Guard(ctx, id)
				time.Sleep(100 * time.Millisecond)
			}
			if gate.Current() != id {
				t.Fatalf("%v after the failover the relay is still at %v", time.Since(began), gate.Current())
			}
		}
		if runs := reader.runs.Load(); runs != 2 {
			t.Errorf("%d runs of the reader, want 2: the first one looks again in its wait", runs)
		}
	})
}
