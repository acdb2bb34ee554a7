package relay

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Connections that were opened to the server before stay unused once the reader has followed to another one, without a sign that would make it connect again.
func TestGateAfterAFailover(t *testing.T) {
	first, second := server.ID{Flavor: outbox.MySQL, UUID: "first"}, server.ID{Flavor: outbox.MySQL, UUID: "second"}
	g := NewGate()
	if !g.Still(first) || !g.Still(second) {
		t.Error("a connection is refused before a server is accepted")
	}
	g.accept(first)
	if !g.Still(first) || g.Still(second) {
		t.Error("the first server is accepted")
	}
	g.accept(second)
	if g.Still(first) || !g.Still(second) {
		t.Error("the second server is accepted, connections to the first one are used")
	}
	select {
	case <-g.refused:
		t.Error("the reader is made to connect again")
	default:
	}
}

// A refusal that is told late, by a server that the reader has followed to since, does not end the stream of that server.
func TestLateRefusalDoesNotEndTheStream(t *testing.T) {
	first, second := server.ID{Flavor: outbox.MySQL, UUID: "first"}, server.ID{Flavor: outbox.MySQL, UUID: "second"}
	gate := NewGate()
	gate.accept(second)
	r := New(Parts{
		Gate: gate, State: &movedState{gate: gate}, Sink: shadow.NewSink(), Reader: func(canal.Handler) Reader { return nil },
	}, Settings{}, zap.NewNop(), prometheus.NewRegistry())
	interrupts := 0
	r.active, r.open, r.interrupt = true, true, func() { interrupts++ }
	r.lookAgain(second)
	if interrupts > 0 {
		t.Error("the stream of the accepted server was ended")
	}
	r.lookAgain(first)
	if interrupts != 1 {
		t.Errorf("%d interrupts after a refusal by another server, want 1", interrupts)
	}
}
